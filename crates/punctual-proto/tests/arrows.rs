//! What depends on what, among the stations of this crate: dependencies point one way.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A file's code: without its tests, and without comments.
fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..tests].lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The first names in what follows `crate::`: of a tree of imports, one for each branch.
fn first_names(code: &str) -> BTreeSet<String> {
    let name = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if !rest.starts_with('{') {
            names.insert(name(rest));
            continue;
        }
        let (mut depth, mut begins) = (0, true);
        for (at, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => begins = true,
                c if begins && depth == 1 && c.is_alphabetic() => {
                    names.insert(name(&rest[at..]));
                    begins = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

/// Of each station, a file or a folder of `src`, those that it uses.
fn arrows(folder: &Path, station: Option<&str>, all: &mut BTreeMap<String, BTreeSet<String>>) {
    for entry in fs::read_dir(folder).expect("it can be read").map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().expect("plain names"));
        let own = station.unwrap_or(name.trim_end_matches(".rs")).to_owned();
        if path.is_dir() {
            arrows(&path, Some(&own), all);
        } else if name.ends_with(".rs") && !name.contains("tests") && !["lib.rs", "fuzzing.rs"].contains(&&*name) {
            let text = fs::read_to_string(&path).expect("it can be read");
            all.entry(own).or_default().extend(first_names(&code(&text)));
        }
    }
}

/// Takes away, again and again, what uses nothing that is left. What stays goes in circles, or leads into them.
fn circles(mut all: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let left: BTreeSet<_> = all.keys().cloned().collect();
        all.iter_mut().for_each(|(name, uses)| uses.retain(|used| used != name && left.contains(used)));
        let before = all.len();
        all.retain(|_, uses| !uses.is_empty());
        if all.len() == before {
            return all;
        }
    }
}

#[test]
fn dependencies_go_one_way() {
    let mut all = BTreeMap::new();
    arrows(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, &mut all);
    assert!(all.len() > 20 && all["session"].contains("path"), "{all:?}");
    let left = circles(all);
    assert!(left.is_empty(), "stations that use each other, or such: {left:#?}");
}

#[test]
fn circles_are_found() {
    let all = |arrows: &[(&str, &str)]| {
        let mut all = BTreeMap::<String, BTreeSet<String>>::new();
        for (from, to) in arrows {
            all.entry((*from).into()).or_default().insert((*to).into());
            all.entry((*to).into()).or_default();
        }
        circles(all).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(all(&[("a", "b"), ("b", "c"), ("a", "c")]), Vec::<String>::new());
    assert_eq!(all(&[("a", "b"), ("b", "c"), ("c", "b")]), ["a", "b", "c"]);
    assert_eq!(
        first_names("use crate::{\n    a::{b, c::d},\n    e,\n};\nuse crate::f;").into_iter().collect::<String>(),
        "aef"
    );
}
