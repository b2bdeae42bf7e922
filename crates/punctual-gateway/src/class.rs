//! How datagrams are carried: by what deadline, how important, how protected, in what order.

use std::{fmt, sync::Arc, time::Duration};

use punctual::{Block, Redundancy, duration};
use serde::{Deserialize, Deserializer};

/// Unless something else is said, a datagram is of no use after so long. Long enough for a path over a satellite, short enough that no queue outlives an outage.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(1);

/// How datagrams of one kind are carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// What it is called, in metrics.
    pub name: Arc<str>,
    /// How long after its coming in a datagram is to be at the far side; `None`: whenever it comes.
    pub deadline: Option<Duration>,
    /// 0 is the highest, 255 the lowest. Of media, that of what matters most in them; see [`Format`].
    pub priority: u8,
    /// How it is protected against loss; `None`: as everything else in the session.
    pub redundancy: Option<Redundancy>,
    /// Whether datagrams of a flow leave the far side in the order in which they came in, those that are lost or late left out.
    pub ordered: bool,
}

/// What a flow carries, as far as the gateway looks into it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Datagrams of which nothing is known.
    #[default]
    Datagrams,
}

impl Format {
    /// All formats, the default first.
    pub const ALL: [Self; 1] = [Self::Datagrams];

    /// Its name, as settings have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams",
        }
    }
}

/// What settings say of a class; what they leave open is as the [format](Format) has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ClassSettings {
    /// A time such as `150ms`, or `none`.
    #[serde(deserialize_with = "deadline")]
    pub deadline: Option<Deadline>,
    /// 0 to 255.
    pub priority: Option<u8>,
    /// The name of a mode.
    #[serde(deserialize_with = "mode")]
    pub redundancy: Option<Redundancy>,
    /// Whether order is kept.
    pub ordered: Option<bool>,
}

/// A deadline, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(pub Option<Duration>);

impl std::str::FromStr for Deadline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let deadline = duration::parse(text).map_err(|error| format!("{error}, or `none`"))?;
        if deadline < Block::MIN_DEADLINE { Err("a deadline is 1ms or more".into()) } else { Ok(Self(Some(deadline))) }
    }
}

impl ClassSettings {
    /// What these settings say, or else what others say.
    pub fn or(&self, other: &Self) -> Self {
        Self {
            deadline: self.deadline.or(other.deadline),
            priority: self.priority.or(other.priority),
            redundancy: self.redundancy.or(other.redundancy),
            ordered: self.ordered.or(other.ordered),
        }
    }

    /// The class of that name for flows of a format.
    pub fn class(&self, name: &str, format: Format) -> Class {
        let Format::Datagrams = format;
        Class {
            name: name.into(),
            deadline: self.deadline.map_or(Some(DEFAULT_DEADLINE), |Deadline(deadline)| deadline),
            priority: self.priority.unwrap_or(128),
            redundancy: self.redundancy,
            ordered: self.ordered.unwrap_or(false),
        }
    }

    /// Takes a setting by its name, as the command line has it: `deadline=150ms`. `false` if there is none of that name.
    ///
    /// # Errors
    /// What is wrong with its value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "deadline" => self.deadline = Some(value.parse()?),
            "priority" => self.priority = Some(value.parse().map_err(|_| "a priority is a number from 0 to 255")?),
            "redundancy" => self.redundancy = Some(value.parse().map_err(text)?),
            "ordered" => self.ordered = Some(value.parse().map_err(|_| "ordered is `true` or `false`")?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

fn deadline<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Deadline>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Redundancy>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

/// What is carried at one port, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Carried {
    pub(crate) format: Format,
    pub(crate) class: Arc<Class>,
}

impl Carried {
    /// Whether any of it is to keep its order.
    pub(crate) fn orders(&self) -> bool {
        self.class.ordered
    }
}

/// Says of each datagram of one flow how it is carried.
#[derive(Debug)]
pub(crate) struct Classifier {
    carried: Arc<Carried>,
}

/// How one datagram is carried.
#[derive(Debug, Clone)]
pub(crate) struct Treatment {
    pub(crate) class: Arc<Class>,
    pub(crate) priority: u8,
}

impl Classifier {
    pub(crate) fn new(carried: Arc<Carried>) -> Self {
        Self { carried }
    }

    pub(crate) fn classify(&mut self, _datagram: &[u8]) -> Treatment {
        let class = self.carried.class.clone();
        Treatment { priority: class.priority, class }
    }
}

impl Treatment {
    /// The block of a word.
    pub(crate) fn block(&self, payload: bytes::Bytes) -> Block {
        let mut block = Block::new(payload).priority(self.priority);
        (block.deadline, block.redundancy) = (self.class.deadline, self.class.redundancy);
        block
    }
}
