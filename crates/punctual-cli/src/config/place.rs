//! Where in a settings file something is wrong.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

/// The line of that place.
fn line_at(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count() + 1
}

/// What is wrong, in one line that begins with the number of the line in which it is, to be put behind the file's name.
pub(super) fn located(text: &str, span: Option<Range<usize>>, message: &str) -> String {
    let message = message.replace('\n', " ");
    span.map_or_else(|| format!(": {message}"), |span| format!(":{}: {message}", line_at(text, span.start)))
}

/// The same of text that cannot be read as a `File`.
pub(super) fn not_read<File: DeserializeOwned>(text: &str, error: &toml::de::Error) -> String {
    // What is found once a table of a list is whole, as that a port has neither `udp` nor `tcp`, is told to be where the list begins.
    let of_table = table_of_list::<File>(text, error.message());
    let outside = |table: &Range<usize>| error.span().is_none_or(|told| !table.contains(&told.start));
    located(text, of_table.filter(outside).or_else(|| error.span()), error.message())
}

/// The table of a list (`[[port]]`) without which, and those behind it, that is not said.
fn table_of_list<File: DeserializeOwned>(text: &str, message: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let says = |list: &str, length: usize| {
        let mut cut = root.clone();
        if let Some(DeValue::Array(tables)) = cut.get_mut().get_mut(list).map(|value| value.get_mut()) {
            *tables = tables.iter().take(length).cloned().collect();
        }
        File::deserialize(toml::Deserializer::from(cut)).is_err_and(|error| error.message() == message)
    };
    for (name, value) in root.get_ref() {
        let DeValue::Array(tables) = value.get_ref() else { continue };
        let name: &str = name.get_ref();
        let first = (0..tables.len()).find(|&index| says(name, index + 1)).filter(|_| !says(name, 0));
        if let Some(index) = first {
            let next = tables.get(index + 1).map_or(text.len(), |next| next.span().start);
            return Some(tables[index].span().start..next);
        }
    }
    None
}

/// The line of a setting, by its name and those of the tables that it is in, or numbers in a list of them: `limits.flows`, `rule.0`.
pub(super) fn line_of(text: &str, setting: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut names = setting.split('.');
    let (key, mut value) = root.get_ref().get_key_value(names.next()?)?;
    let mut at = key.span().start;
    for name in names {
        (at, value) = match value.get_ref() {
            DeValue::Table(table) => table.get_key_value(name).map(|(key, value)| (key.span().start, value))?,
            DeValue::Array(list) => list.get(name.parse::<usize>().ok()?).map(|value| (value.span().start, value))?,
            _ => return None,
        };
    }
    Some(line_at(text, at))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "it is only read")]
    struct File {
        #[serde(default)]
        port: Vec<Port>,
        #[serde(default)]
        other: Vec<Port>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(try_from = "Written")]
    struct Port;

    #[derive(Deserialize)]
    struct Written {
        number: u8,
    }

    impl TryFrom<Written> for Port {
        type Error = String;

        fn try_from(written: Written) -> Result<Self, String> {
            if written.number < 100 { Ok(Self) } else { Err(format!("{} is too much", written.number)) }
        }
    }

    #[test]
    fn what_is_wrong_with_a_table_is_said_with_the_line_of_that_table() {
        let [good, bad, no_number] = ["number = 1", "number = 200", "number = 'one'"].map(|line| format!("{line}\n"));
        let [port, other] = ["[[port]]\n", "[[other]]\n"];
        for (text, line) in [
            ([port, &bad].concat(), ":1: "),
            ([port, &good, port, &bad, port, &bad].concat(), ":3: "),
            ([other, &good, port, &good, other, &good, port, &bad].concat(), ":7: "),
            ([port, &good, port, &no_number].concat(), ":4: "),
            ([port, &good, "\n[[port]] # no number\n"].concat(), ":4: "),
            (["port = [{number = 1},\n{number = 200}]"].concat(), ":2: "),
        ] {
            let error = not_read::<File>(&text, &toml::from_str::<File>(&text).unwrap_err());
            assert!(error.starts_with(line), "{text}{error}");
        }
    }

    #[test]
    fn a_setting_is_found_by_its_name() {
        let text = "a = 1\n[table]\nb = 2\n\n[table.inner]\na = 3\n[[list]]\na = 4\n[[list]]\na = 5";
        let there = ["a", "table", "table.b", "table.inner.a", "list.0", "list.1", "list.1.a"];
        assert_eq!(there.map(|name| line_of(text, name)), [1, 2, 3, 6, 7, 9, 10].map(Some));
        assert_eq!(["b", "table.c", "a.b", "list.2", "list.a"].map(|name| line_of(text, name)), [None; 5]);
        assert_eq!(line_of("no TOML", "a"), None);
    }
}
