//! The pages of a listing, of which each says where the next begins.
//!
//! A listing of which a part is missing must not be taken for the whole, and one without an end must
//! not take time and memory without an end.

use crate::failure::Failure;

/// The most pages: with a thousand objects each, about two petabytes in arenas.
const PAGES_MAX: usize = 1 << 17;

/// Where a listing goes on.
pub(crate) struct Pages<T> {
    count: usize,
    /// Where the present page begins; none of the first.
    begins: Option<T>,
}

impl<T: PartialEq> Pages<T> {
    /// A listing from its beginning on.
    pub(crate) fn new() -> Self {
        Self { count: 1, begins: None }
    }

    /// Where the present page begins; none of the first.
    pub(crate) fn begins(&self) -> Option<&T> {
        self.begins.as_ref()
    }

    /// Goes on to the page that begins there. False if there is none.
    pub(crate) fn turn(&mut self, next: Option<T>) -> Result<bool, Failure> {
        if next.is_none() {
            return Ok(false);
        }
        if next == self.begins {
            return Err(Failure::lost("a listing that gives one page again and again"));
        }
        if self.count == PAGES_MAX {
            return Err(Failure::lost("a listing without an end"));
        }
        self.count += 1;
        self.begins = next;
        Ok(true)
    }
}

/// Refuses a page with a name that was not asked for: it answers another question.
pub(crate) fn all_begin_with<'a>(
    prefix: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), Failure> {
    match names.into_iter().find(|name| !name.starts_with(prefix)) {
        Some(other) => {
            Err(Failure::lost(format!("a listing of {prefix:?} that has {other:?} in it")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_on_and_has_an_end() {
        let mut pages = Pages::new();
        assert_eq!(pages.begins(), None);
        assert!(pages.turn(Some(1)).unwrap() && pages.begins() == Some(&1));
        assert!(pages.turn(Some(1)).is_err(), "the same page again");
        assert!(!pages.turn(None).unwrap());
        let mut pages = Pages::new();
        let turned = (0..2 * PAGES_MAX).take_while(|next| pages.turn(Some(*next)).is_ok());
        assert_eq!(turned.count(), PAGES_MAX - 1);
    }
}
