//! An experiment's text as a tree, and changes to single leaves of it.

use toml::{Table, Value};

use super::ExperimentError;

/// Sets the leaf that `key` names, as in `path.0.loss` or `session.congestion`. Tables on the way that are not there are made;
/// list elements must be there.
pub(super) fn set(document: &mut Table, key: &str, value: Value) -> Result<(), ExperimentError> {
    let error = |what: &str| ExperimentError::Key { key: key.to_owned(), what: what.to_owned() };
    let mut parts = key.split('.').peekable();
    let first = parts.next().filter(|part| !part.is_empty()).ok_or_else(|| error("it is empty"))?;
    if parts.peek().is_none() {
        document.insert(first.to_owned(), value);
        return Ok(());
    }
    let mut at = document.entry(first).or_insert_with(|| Value::Table(Table::new()));
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        at = match at {
            Value::Table(table) if last => {
                table.insert(part.to_owned(), value);
                return Ok(());
            }
            Value::Table(table) => table.entry(part).or_insert_with(|| Value::Table(Table::new())),
            Value::Array(list) => {
                let length = list.len();
                let element = part.parse::<usize>().ok().and_then(|index| list.get_mut(index));
                let Some(element) = element else {
                    return Err(error(&format!("`{part}` is not one of the {length} elements, counted from 0")));
                };
                if last {
                    *element = value;
                    return Ok(());
                }
                element
            }
            _ => return Err(error(&format!("there is nothing below `{part}`'s parent"))),
        };
    }
    Ok(())
}

/// A value as a person gives it on the command line: TOML if it is, else text.
pub(super) fn value(text: &str) -> Value {
    // A value alone is no document, and `8 Mbit/s` no value.
    let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok().and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// `template` with `{}` replaced by the value, or the value itself without a template.
pub(super) fn fill(template: Option<&str>, given: &Value) -> Value {
    match template {
        Some(template) => Value::String(template.replace("{}", &label(given))),
        None => given.clone(),
    }
}

/// A value as it stands in reports.
pub(super) fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Table {
        toml::from_str("duration = '1s'\n[[path]]\nloss = 0.1\n[[path]]\nloss = 0.2\n[session]\nscheduler = 'ads'")
            .unwrap()
    }

    #[test]
    fn leaves_are_set() {
        let mut table = document();
        for (key, to) in
            [("duration", "'2s'"), ("path.1.loss", "0.5"), ("path.0.back.loss", "0"), ("a.b.c", "8 Mbit/s")]
        {
            set(&mut table, key, value(to)).unwrap();
        }
        assert_eq!(table["duration"].as_str(), Some("2s"));
        assert_eq!(table["path"][1]["loss"].as_float(), Some(0.5));
        assert_eq!(table["path"][0]["back"]["loss"].as_integer(), Some(0));
        assert_eq!(table["a"]["b"]["c"].as_str(), Some("8 Mbit/s"));
    }

    #[test]
    fn what_cannot_be_set_is_named() {
        for (key, word) in
            [("", "empty"), ("path.2.loss", "2 elements"), ("path.x.loss", "2 elements"), ("duration.x", "nothing")]
        {
            let error = set(&mut document(), key, Value::Integer(1)).unwrap_err().to_string();
            assert!(error.contains(word), "{key}: {error}");
        }
    }
}
