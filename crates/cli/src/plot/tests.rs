//! Pictures of few and many values, and of dates from other times.

use super::*;

fn picture(times: &[i64]) -> Picture {
    let values = |factor: f64| {
        let point = |(place, seconds): (usize, &i64)| {
            let time = Timestamp(seconds.saturating_mul(1_000_000_000));
            (time, factor * (place + 1) as f64)
        };
        times.iter().enumerate().map(point).collect()
    };
    let bar = |(place, _): (usize, &i64)| Bar {
        label: format!("host-{place}:/home/日本&<{place}>"),
        whole: 1 << (40 - place.min(40)),
        own: 1 << (30 - place.min(30)),
    };
    Picture {
        title: "Repository <a&b>".to_owned(),
        series: vec![
            Series { title: "stored", unit: Unit::Bytes, points: values(1e9) },
            Series { title: "deduplication", unit: Unit::Ratio, points: values(0.7) },
        ],
        bars_title: "what each costs",
        bars: times.iter().enumerate().take(50).map(bar).collect(),
    }
}

const DAY: i64 = 86_400;
const NOW: i64 = 1_764_000_000;

fn all() -> Vec<(&'static str, Picture)> {
    let thousand: Vec<i64> = (0..1000).map(|day| NOW + day * DAY).collect();
    vec![
        ("nothing", picture(&[])),
        ("one", picture(&[NOW])),
        ("equal dates", picture(&[NOW; 5])),
        ("an afternoon", picture(&[NOW, NOW + 3600, NOW + 7200])),
        ("a thousand", picture(&thousand)),
        ("1970 and 2150", picture(&[0, NOW, NOW + DAY, 5_680_281_600])),
        ("the ends of time", picture(&[i64::MIN, 0, i64::MAX])),
    ]
}

#[test]
fn pictures_fit_their_columns() {
    for (name, picture) in all() {
        for columns in [0, 40, 80, 200, 10_000] {
            for line in text::lines(&picture, columns, false) {
                let used = line.chars().count();
                assert!(used <= columns.clamp(80, 400), "{name} at {columns}: {line}");
            }
        }
    }
}

#[test]
fn a_picture_looks_like_this() {
    let growing = picture(&[NOW, NOW + 20 * DAY, NOW + 30 * DAY, NOW + 90 * DAY]);
    insta::assert_snapshot!("plot_80", text::lines(&growing, 80, false).join("\n"));
    insta::assert_snapshot!("plot_200", text::lines(&growing, 200, false).join("\n"));
    let coloured = text::lines(&growing, 80, true).join("\n");
    assert!(coloured.contains("\x1b[36m█"), "{coloured}");
}

#[test]
fn a_file_is_xml_with_escaped_names() {
    for (name, picture) in all() {
        let document = svg::document(&picture);
        assert!(document.contains("Repository &lt;a&amp;b&gt;"), "{name}");
        assert!(!document.contains("NaN") && !document.contains("inf"), "{name}: {document}");
        assert_eq!(document.matches("<svg").count(), 1);
    }
}
