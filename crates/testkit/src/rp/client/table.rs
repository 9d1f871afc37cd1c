//! The table of a client: which server has which range, as far as it knows.
//!
//! The ranges are sorted and do not meet. There may be gaps.

use std::net::SocketAddr;

use strongroom_bucket::KeyRange;

use super::super::wire::Image;

/// The table.
#[derive(Debug, Default)]
pub struct Table(Vec<Image>);

impl Table {
    /// The server that has a key.
    pub fn find(&self, key: &[u8]) -> Option<&Image> {
        self.0.iter().find(|image| image.range.contains(key))
    }

    /// All that is known, in order.
    pub fn images(&self) -> &[Image] {
        &self.0
    }

    /// Adds a range. If it meets others, the higher split version is believed, and of two with the
    /// same version the newer word.
    pub fn learn(&mut self, image: Image) {
        let (newer, older): (Vec<Image>, Vec<Image>) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|known| known.split_version > image.split_version);
        let mut parts = vec![image.clone()];
        for known in &newer {
            parts = parts.iter().flat_map(|part| without(part, &known.range)).collect();
        }
        let kept = older.iter().flat_map(|known| without(known, &image.range));
        self.0 = newer.iter().cloned().chain(parts).chain(kept).collect();
        self.0.sort_by(|one, other| one.range.cmp(&other.range));
    }

    /// Removes a range that is not where it was said to be.
    pub fn remove(&mut self, image: &Image) {
        self.0.retain(|known| known != image);
    }

    /// Removes all ranges of a server.
    pub fn forget(&mut self, address: SocketAddr) {
        self.0.retain(|known| known.address != address);
    }
}

/// What is left of an image without a range: nothing, or one or two parts.
fn without(image: &Image, range: &KeyRange) -> Vec<Image> {
    if !image.range.meets(range) {
        return vec![image.clone()];
    }
    let KeyRange { low, high } = image.range.clone();
    let below = KeyRange { low: low.clone(), high: Some(range.low.clone()) };
    let behind = range.high.clone().map(|end| KeyRange { low: end, high });
    let is_below = low < range.low;
    let parts = is_below.then_some(below).into_iter().chain(behind);
    parts.filter(KeyRange::is_valid).map(|range| Image { range, ..image.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(range: &str, split_version: u64, port: u16) -> Image {
        let (low, high) = range.split_once('-').unwrap();
        let high = (!high.is_empty()).then(|| high.as_bytes().to_vec());
        let range = KeyRange { low: low.as_bytes().to_vec(), high };
        Image { range, split_version, address: ([127, 0, 0, 1], port).into() }
    }

    /// Learns what is listed, in this order; shows what is known then.
    fn learned(images: &[(&str, u64, u16)]) -> String {
        let mut table = Table::default();
        for (range, split_version, port) in images {
            table.learn(image(range, *split_version, *port));
        }
        let shown = |image: &Image| format!("{} {}", image.range.interval(), image.address.port());
        let shown = table.images().iter().map(shown);
        shown.collect::<Vec<String>>().join(" ")
    }

    #[test]
    fn the_higher_split_version_is_believed() {
        assert_eq!(learned(&[("-", 0, 1), ("m-", 1, 2)]), "[, m) 1 [m, ) 2");
        assert_eq!(learned(&[("m-", 1, 2), ("-", 0, 1)]), "[, m) 1 [m, ) 2");
        assert_eq!(learned(&[("-", 3, 1), ("d-m", 2, 2)]), "[, ) 1");
        assert_eq!(learned(&[("d-m", 2, 2), ("-", 1, 1)]), "[, d) 1 [d, m) 2 [m, ) 1");
        assert_eq!(learned(&[("-", 1, 1), ("d-m", 2, 2)]), "[, d) 1 [d, m) 2 [m, ) 1");
    }

    #[test]
    fn of_two_with_the_same_version_the_newer_word_is_believed() {
        assert_eq!(learned(&[("a-m", 1, 1), ("a-m", 1, 2)]), "[a, m) 2");
        assert_eq!(learned(&[("a-m", 1, 1), ("d-z", 1, 2)]), "[a, d) 1 [d, z) 2");
    }
}
