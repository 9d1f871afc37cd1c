//! Tables of Markdown, and the form of numbers in them.

/// A table: the first row is its head; all columns but the first are aligned to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let Some(head) = rows.first() else { return String::new() };
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<&str> = head
        .iter()
        .enumerate()
        .map(|(column, _)| if column == 0 { "---" } else { "---:" })
        .collect();
    let body: String = rows[1..].iter().map(|row| line(row)).collect();
    format!("{}|{}|\n{body}", line(head), rule.join("|"))
}

/// A row from anything that is text.
pub fn row<S: Into<String>>(cells: impl IntoIterator<Item = S>) -> Vec<String> {
    cells.into_iter().map(Into::into).collect()
}

/// Nothing to report.
pub const NONE: &str = "–";

/// Seconds, to about three digits but never more than a thousandth.
pub fn seconds(value: f64) -> String {
    match value {
        value if value >= 99.5 => format!("{value:.0}"),
        value if value >= 9.95 => format!("{value:.1}"),
        value if value >= 0.0995 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// A count and its noun.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Millions of bytes.
pub fn megabytes(bytes: f64) -> String {
    match bytes / 1e6 {
        value if value.abs() >= 99.5 => format!("{value:.0}"),
        value if value.abs() >= 9.95 => format!("{value:.1}"),
        value if value.abs() >= 0.995 => format!("{value:.2}"),
        value if value.abs() >= 0.0995 => format!("{value:.3}"),
        0.0 => "0".to_owned(),
        value => format!("{value:.4}"),
    }
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many times one number is another.
pub fn times(value: f64) -> String {
    if value >= 9.95 { format!("{value:.1}×") } else { format!("{value:.2}×") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_head_and_a_rule() {
        let rows = [row(["", "first"]), row(["restic", "1.0"])];
        assert_eq!(table(&rows), "|  | first |\n|---|---:|\n| restic | 1.0 |\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn numbers() {
        assert_eq!(
            [0.0, 0.0314, 0.314, 9.96, 120.4].map(seconds),
            ["0.000", "0.031", "0.31", "10.0", "120"]
        );
        let bytes = [0.0, 1_234.0, 314_159.0, 1_500_000.0, 12_340_000.0, 277e6, -3_000.0];
        assert_eq!(
            bytes.map(megabytes),
            ["0", "0.0012", "0.314", "1.50", "12.3", "277", "-0.0030"]
        );
        assert_eq!([1, 2].map(|count| counted(count, "file")), ["1 file", "2 files"]);
        let counts = [0, 12, 123, 1_234, 1_234_567];
        assert_eq!(counts.map(grouped), ["0", "12", "123", "1,234", "1,234,567"]);
        assert_eq!([0.5, 12.0].map(times), ["0.50×", "12.0×"]);
    }
}
