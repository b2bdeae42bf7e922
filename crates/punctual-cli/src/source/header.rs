//! The line before a message (`--framed-headers`) that says what is to hold for it alone.

use punctual::Channel;

use super::Own;
use crate::config::parse_deadline;

/// Bytes of a line, its end included.
pub(super) const MAX_LINE: usize = 1024;

/// Messages back that one may name: what lies further back is long since delivered or dropped.
const MAX_BACK: u64 = 255;

/// As many dependencies as a block may have.
const MAX_NEEDS: usize = 64;

/// What is said of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) own: Own,
    /// Numbers of the messages that it needs, from 0.
    pub(super) dependencies: Vec<u64>,
}

/// Reads the line of message `number`, from 0: fields `name=value` with spaces between, none of them necessary.
pub(super) fn parse(line: &[u8], number: u64) -> Result<Header, String> {
    let expected = "expected a line of fields such as `priority=0 channel=1 deadline=50ms needs=1,2`";
    let line =
        line.strip_suffix(b"\n").ok_or_else(|| format!("{expected}, of at most {MAX_LINE} bytes with its end"))?;
    let line = std::str::from_utf8(line).map_err(|_| format!("{expected}, in UTF-8"))?;
    let mut header = Header::default();
    let mut seen = Vec::new();
    for field in line.split_whitespace() {
        let (name, value) = field.split_once('=').ok_or_else(|| format!("`{field}` is no field; {expected}"))?;
        if seen.contains(&name) {
            return Err(format!("`{name}` is said twice"));
        }
        seen.push(name);
        let own = &mut header.own;
        let bad = |words: &str| format!("`{field}`: {words}");
        match name {
            "priority" => own.priority = Some(value.parse().map_err(|_| bad("a priority is 0 to 255"))?),
            "channel" if value == "none" => own.channel = Some(None),
            "channel" => {
                let channel = value.parse().map_err(|_| bad("a channel is a number, or `none`"))?;
                own.channel = Some(Some(Channel(channel)));
            }
            "deadline" if value == "none" => own.deadline = Some(None),
            "deadline" => own.deadline = Some(Some(parse_deadline(value).map_err(|error| bad(&error))?)),
            "needs" => header.dependencies = needs(value, number).map_err(|error| bad(&error))?,
            _ => return Err(format!("there is no field `{name}`; there are priority, channel, deadline and needs")),
        }
    }
    Ok(header)
}

/// The messages that are so many before this one, which is message `number`.
fn needs(value: &str, number: u64) -> Result<Vec<u64>, String> {
    let mut needs = Vec::new();
    for text in value.split(',') {
        let back = text.parse::<u64>().ok().filter(|back| (1..=MAX_BACK).contains(back));
        let back = back.ok_or_else(|| format!("expected how many messages back, 1 to {MAX_BACK}, such as 1 or 1,3"))?;
        let on = number.checked_sub(back).ok_or_else(|| format!("there are only {number} messages before this one"))?;
        if !needs.contains(&on) {
            needs.push(on);
        }
    }
    if needs.len() > MAX_NEEDS { Err(format!("a message can need {MAX_NEEDS} others at most")) } else { Ok(needs) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_says_what_it_says() {
        let header = parse(b"needs=2,1,2 deadline=1s  priority=0 channel=4294967295\n", 9).unwrap();
        let own = Own {
            priority: Some(0),
            channel: Some(Some(Channel(u32::MAX))),
            deadline: Some(Some(Duration::from_secs(1))),
        };
        assert_eq!(header, Header { own, dependencies: vec![7, 8] });
        assert_eq!(parse(b"\n", 0), Ok(Header::default()));
        assert_eq!(parse(b"\r\n", 0), Ok(Header::default()), "ends of lines of other systems");
        assert_eq!(parse(b"deadline=none channel=none\n", 0).unwrap().own.deadline, Some(None));
    }

    #[test]
    fn errors_name_the_field() {
        for (line, word) in [
            ("priority=256\n", "`priority=256`: a priority is 0 to 255"),
            ("channel=-1\n", "a channel is a number, or `none`"),
            ("deadline=soon\n", "150ms"),
            ("deadline=-5ms\n", "negative"),
            ("needs=0\n", "1 to 255"),
            ("needs=256\n", "1 to 255"),
            ("needs=4\n", "only 3 messages before"),
            ("colour=red\n", "there is no field `colour`"),
            ("priority\n", "`priority` is no field"),
            ("priority=1 priority=2\n", "`priority` is said twice"),
            ("priority=1", "at most 1024 bytes"),
        ] {
            let error = parse(line.as_bytes(), 3).unwrap_err();
            assert!(error.contains(word), "{line:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_not(line in prop::collection::vec(any::<u8>(), 0..200), number in 0u64..1000) {
            if let Ok(header) = parse(&line, number) {
                prop_assert!(header.dependencies.iter().all(|&on| on < number));
            }
        }
    }
}
