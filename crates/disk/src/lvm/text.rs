//! The text in which LVM2 describes a volume group.
//!
//! Sections in braces, numbers, strings and lists of both. It only takes apart; `groups.rs` gives
//! it a meaning.

/// Sections in sections: LVM has three.
const DEPTH_MAX: usize = 8;

/// A value of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Number(i64),
    Text(String),
    List(Vec<Value>),
    Section(Section),
}

/// Names and values, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Section(Vec<(String, Value)>);

impl Section {
    /// Takes a text apart; `None` if it is not of this form. It takes memory in proportion to the
    /// text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut tokens = Tokens { rest: text };
        tokens.section(0)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// A number that is not negative.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list(&self, name: &str) -> Option<&[Value]> {
        match self.get(name)? {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        match self.get(name)? {
            Value::Section(section) => Some(section),
            _ => None,
        }
    }

    /// All texts in it, in lists too.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let values = self.0.iter().flat_map(|(_, value)| match value {
            Value::List(list) => list.as_slice(),
            value => std::slice::from_ref(value),
        });
        values.filter_map(|value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The sections in it, by name.
    pub(super) fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.0.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((name.as_str(), section)),
            _ => None,
        })
    }
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn skip(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            let Some(comment) = self.rest.strip_prefix('#') else { return };
            self.rest = comment.split_once('\n').map_or("", |(_, after)| after);
        }
    }

    fn eat(&mut self, sign: char) -> bool {
        self.skip();
        let after = self.rest.strip_prefix(sign);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn word(&mut self) -> Option<&'a str> {
        self.skip();
        let is_inside = |c: char| c.is_ascii_alphanumeric() || "+-_./".contains(c);
        let end = self.rest.find(|c| !is_inside(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// A section up to its closing brace, or the whole text.
    fn section(&mut self, depth: usize) -> Option<Section> {
        let mut section = Section::default();
        loop {
            self.skip();
            let is_closed = depth > 0 && self.eat('}');
            if is_closed || (depth == 0 && self.rest.is_empty()) {
                return Some(section);
            }
            let name = self.word()?.to_owned();
            let value = if self.eat('{') {
                if depth >= DEPTH_MAX {
                    return None;
                }
                Value::Section(self.section(depth + 1)?)
            } else {
                if !self.eat('=') {
                    return None;
                }
                self.value()?
            };
            section.0.push((name, value));
        }
    }

    fn value(&mut self) -> Option<Value> {
        if !self.eat('[') {
            return self.scalar();
        }
        let mut list = Vec::new();
        while !self.eat(']') {
            list.push(self.scalar()?);
            self.eat(',');
        }
        Some(Value::List(list))
    }

    fn scalar(&mut self) -> Option<Value> {
        if !self.eat('"') {
            let word = self.word()?;
            return word.parse().ok().map(Value::Number).or(Some(Value::Text(word.into())));
        }
        let mut text = String::new();
        let mut characters = self.rest.char_indices();
        loop {
            match characters.next()? {
                (at, '"') => {
                    self.rest = &self.rest[at + 1..];
                    return Some(Value::Text(text));
                }
                (_, '\\') => text.push(characters.next()?.1),
                (_, other) => text.push(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_numbers_texts_and_lists_are_taken_apart() {
        let text = "# head\nvg {\nid = \"a\\\"b\" # why\nextent_size = 8192\nl = []\n\
                    s { stripes = [\n\"pv0\", 0\n] }\n}\ncreation_host=\"x\"\n";
        let parsed = Section::parse(text).unwrap();
        let group = parsed.section("vg").unwrap();
        assert_eq!(group.text("id"), Some("a\"b"));
        assert_eq!(group.number("extent_size"), Some(8192));
        assert_eq!(group.list("l"), Some(&[][..]));
        let stripes = group.section("s").unwrap().list("stripes").unwrap();
        assert_eq!(stripes, [Value::Text("pv0".into()), Value::Number(0)]);
        assert_eq!(parsed.text("creation_host"), Some("x"));
    }

    #[test]
    fn other_texts_are_refused() {
        let deep = "a {".repeat(10_000);
        let lists = "a=[".repeat(10_000);
        for text in ["a", "a = ", "a {", "a = \"", "}", "a = [1", "a = [[1]]", &deep, &lists] {
            assert_eq!(Section::parse(text), None, "{text:.10}");
        }
    }
}
