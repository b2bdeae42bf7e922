//! Holds the table of limits in `docs/design.md` to the code: defaults of `Limits`, and constants where they are.

use std::{collections::BTreeMap, fs, path::Path};

use punctual_proto::Limits;

const DESIGN: &str = include_str!("../../../docs/design.md");

/// The cells of the table's rows, without its heading.
fn rows() -> Vec<Vec<&'static str>> {
    let under = DESIGN.lines().skip_while(|line| *line != "## Limits").skip_while(|line| !line.starts_with('|'));
    let lines = under.take_while(|line| line.starts_with('|')).skip(2);
    lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// What is in backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The numbers in a text, in order: `16 MiB, 16,384` are two.
fn numbers(text: &str) -> Vec<u64> {
    let mut found = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let word = word.trim_end_matches([',', ';']);
        let Ok(number) = word.replace(',', "").parse::<u64>() else { continue };
        let unit = words.peek().map(|unit| unit.trim_end_matches([',', ';']));
        let shift = [("KiB", 10), ("MiB", 20), ("GiB", 30)].iter().find(|(name, _)| unit == Some(name));
        found.push(number << shift.map_or(0, |(_, shift)| *shift));
    }
    found
}

/// The value of a constant, by the source that defines it: a number, or one shifted.
fn constant(source: &str, name: &str) -> Option<u64> {
    let definition = source.lines().find_map(|line| line.split_once(&format!("const {name}: ")))?.1;
    let value = definition.split_once(" = ")?.1.trim_end_matches(';').replace('_', "");
    let (number, shift) = value.split_once(" << ").unwrap_or((&value, "0"));
    Some(number.parse::<u64>().ok()? << shift.parse::<u32>().ok()?)
}

/// A number; of a time, its seconds.
fn seconds_or_number(value: &str) -> u64 {
    value.strip_suffix('s').unwrap_or(value).parse().expect(value)
}

#[test]
fn the_table_of_limits_is_what_the_code_does() {
    let shown = format!("{:#?}", Limits::default());
    let fields = shown.lines().filter_map(|line| line.trim().trim_end_matches(',').split_once(": "));
    let mut fields: BTreeMap<&str, u64> = fields.map(|(name, value)| (name, seconds_or_number(value))).collect();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut constants = 0;
    for row in rows() {
        let [what, default, ..] = row[..] else { panic!("{row:?}") };
        let said = numbers(default);
        let names = quoted(what);
        let Some((file, names)) = names.split_first().filter(|(first, _)| first.ends_with(".rs")) else {
            let values: Vec<u64> =
                names.iter().map(|name| fields.remove(name).unwrap_or_else(|| panic!("{name}"))).collect();
            assert_eq!(said, values, "{what}");
            continue;
        };
        let path = match file.strip_prefix("punctual/src/") {
            Some(file) => sources.join("../../punctual/src").join(file),
            None => sources.join(file),
        };
        let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let value = |name: &&str| constant(&source, name).unwrap_or_else(|| panic!("{file} has no constant {name}"));
        assert_eq!(said, names.iter().map(value).collect::<Vec<_>>(), "{what}");
        constants += names.len();
    }
    assert!(fields.is_empty(), "not in the table: {fields:?}");
    assert!(constants >= 20, "{constants}");
}

#[test]
fn numbers_are_read_with_their_units() {
    assert_eq!(numbers("64 MiB, 16,384"), [64 << 20, 16_384]);
    assert_eq!(numbers("256, 0; 1 MiB each"), [256, 0, 1 << 20]);
    assert_eq!(constant("pub(crate) const A: u64 = 65_536;\nconst B: usize = 64 << 10;", "B"), Some(65_536));
}
