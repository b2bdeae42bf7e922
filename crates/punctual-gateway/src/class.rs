//! How datagrams are carried: by what deadline, how important, how protected, in what order.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use punctual::{Block, BlockId, Limits, Redundancy, duration};
use serde::{Deserialize, Deserializer};

use crate::{
    media::{Codec, FrameSet, Packet, Picture, TransportStream, Weight},
    tunnel::Name,
};

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
    /// How long after its coming in a datagram leaves the far side, whatever the network's jitter; what is not there by then is left out, and order is
    /// kept. `None`: as soon as it comes. A flow has one: the longest of those its port's datagrams may have.
    pub latency: Option<Duration>,
}

/// What a flow carries, as far as the gateway looks into it.
///
/// Of media, the class's priority is that of what matters most; what matters less comes after it, as far as there are priorities left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Datagrams of which nothing is known.
    #[default]
    Datagrams,
    /// RTP: packets of a frame hang together. Of H.264 and H.265, key pictures go before others, those that no other refers to come last.
    Rtp(Option<Codec>),
    /// MPEG transport stream: tables and sound go before video, of that key pictures first. Its order is kept.
    TransportStream,
}

impl Format {
    /// All formats, the default first.
    pub const ALL: [Self; 5] = [
        Self::Datagrams,
        Self::Rtp(None),
        Self::Rtp(Some(Codec::H264)),
        Self::Rtp(Some(Codec::H265)),
        Self::TransportStream,
    ];

    /// Its name, as settings have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams",
            Self::Rtp(None) => "rtp",
            Self::Rtp(Some(Codec::H264)) => "rtp-h264",
            Self::Rtp(Some(Codec::H265)) => "rtp-h265",
            Self::TransportStream => "mpegts",
        }
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| {
            format!("there is no format `{text}`; choose one of: {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
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
    /// A time such as `200ms`.
    #[serde(deserialize_with = "latency")]
    pub latency: Option<Duration>,
}

fn parse_latency(text: &str) -> Result<Duration, String> {
    let latency = duration::parse(text).map_err(|error| error.to_string())?;
    // The far side is a gateway, too, and holds nothing back for longer.
    let longest = Limits::default().wished_latency;
    match latency {
        Duration::ZERO => Err("a latency is more than nothing".into()),
        _ if latency > longest => Err(format!("a latency is {} or less", duration::spoken(longest))),
        _ => Ok(latency),
    }
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
            latency: self.latency.or(other.latency),
        }
    }

    /// The class of that name for flows of a format.
    pub fn class(&self, name: &str, format: Format) -> Class {
        let is_media = format != Format::Datagrams;
        Class {
            name: name.into(),
            deadline: self.deadline.map_or(Some(DEFAULT_DEADLINE), |Deadline(deadline)| deadline),
            priority: self.priority.unwrap_or(if is_media { 0 } else { 128 }),
            redundancy: self.redundancy,
            ordered: self.ordered.unwrap_or(format == Format::TransportStream),
            latency: self.latency,
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
            "latency" => self.latency = Some(parse_latency(value)?),
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

fn latency<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    parse_latency(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Redundancy>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Which of a port's datagrams are of another class. All that is said must hold.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    /// The class that they are of.
    pub class: String,
    /// Only at the port of that name.
    #[serde(default)]
    pub name: Option<Name>,
    /// Only from programs in that network: `10.1.0.0/16`, or one address.
    #[serde(default, deserialize_with = "network")]
    pub from: Option<IpNet>,
    /// Only from programs at that port.
    #[serde(default)]
    pub port: Option<u16>,
    /// Only what programs have marked so (DSCP): `ef`, `af41`, `cs5`, or a number from 0 to 63. Known on Linux only.
    #[serde(default)]
    pub dscp: Option<Dscp>,
    /// Only RTP of that payload type.
    #[serde(default)]
    pub payload_type: Option<u8>,
    /// Only datagrams of that size or more, bytes.
    #[serde(default)]
    pub min_size: Option<usize>,
    /// Only datagrams of that size or less, bytes.
    #[serde(default)]
    pub max_size: Option<usize>,
}

/// A mark of RFC 2474.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Dscp(pub u8);

impl TryFrom<toml::Value> for Dscp {
    type Error = String;

    fn try_from(written: toml::Value) -> Result<Self, String> {
        let number = match &written {
            toml::Value::Integer(number) => u8::try_from(*number).ok().filter(|number| *number < 64),
            toml::Value::String(name) => named(&name.to_ascii_lowercase()),
            _ => None,
        };
        number
            .map(Self)
            .ok_or_else(|| format!("{written} is no DSCP: expected ef, af11 to af43, cs0 to cs7, or 0 to 63"))
    }
}

/// The number of a name of RFC 2474, 2597 or 3246.
fn named(name: &str) -> Option<u8> {
    let digits = |from: &str| from.bytes().map(|digit| digit.wrapping_sub(b'0')).collect::<Vec<u8>>();
    match name.split_at_checked(2)? {
        ("ef", "") => Some(46),
        ("cs", rest) => match digits(rest)[..] {
            [class @ 0..=7] => Some(8 * class),
            _ => None,
        },
        ("af", rest) => match digits(rest)[..] {
            [class @ 1..=4, drop @ 1..=3] => Some(8 * class + 2 * drop),
            _ => None,
        },
        _ => None,
    }
}

fn network<'de, D: Deserializer<'de>>(from: D) -> Result<Option<IpNet>, D::Error> {
    let text = String::deserialize(from)?;
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse().or_else(|_| address());
    network.map(Some).map_err(|_| serde::de::Error::custom(format!("`{text}` is no network such as 10.1.0.0/16")))
}

impl Rule {
    /// Why it holds for no datagram that could come, if so.
    pub(crate) fn never_holds(&self) -> Option<&'static str> {
        match *self {
            Self { port: Some(0), .. } => Some("no program is at port 0"),
            Self { payload_type: Some(128..), .. } => Some("a payload type is a number from 0 to 127"),
            Self { min_size: Some(least), max_size: Some(most), .. } if least > most => {
                Some("min-size is more than max-size")
            }
            _ => None,
        }
    }

    fn holds(&self, datagram: &[u8], Origin { program, dscp }: Origin) -> bool {
        let payload_type = || Packet::parse(datagram).map(|packet| packet.payload_type);
        self.from.is_none_or(|network| network.contains(&program.ip()))
            && self.port.is_none_or(|port| port == program.port())
            && self.dscp.is_none_or(|Dscp(wanted)| dscp == Some(wanted))
            && self.min_size.is_none_or(|size| datagram.len() >= size)
            && self.max_size.is_none_or(|size| datagram.len() <= size)
            && self.payload_type.is_none_or(|wanted| payload_type() == Some(wanted))
    }
}

/// What is carried at one port, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Carried {
    pub(crate) format: Format,
    /// What no rule says anything of.
    pub(crate) class: Arc<Class>,
    /// What some say otherwise, the first that holds.
    pub(crate) rules: Vec<(Rule, Arc<Class>)>,
}

impl Carried {
    /// Whether any of it is to keep its order, or to be held back.
    pub(crate) fn orders(&self) -> bool {
        self.classes().any(|class| class.ordered) || self.latency().is_some()
    }

    /// How long after their coming in datagrams leave the far side.
    pub(crate) fn latency(&self) -> Option<Duration> {
        self.classes().filter_map(|class| class.latency).max()
    }

    fn classes(&self) -> impl Iterator<Item = &Class> {
        [&self.class].into_iter().chain(self.rules.iter().map(|(_, class)| class)).map(|class| &**class)
    }
}

/// Where a datagram comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// Whose it is.
    pub(crate) program: SocketAddr,
    /// How it was marked, if that is known.
    pub(crate) dscp: Option<u8>,
}

/// Says of each datagram of one flow how it is carried.
#[derive(Debug)]
pub(crate) struct Classifier {
    carried: Arc<Carried>,
    stream: TransportStream,
    frames: FrameSet<BlockId>,
    /// Whether the datagram that was seen last is a packet of a frame.
    of_frame: bool,
    /// The session that blocks have their names in.
    generation: u64,
}

/// How one datagram is carried.
#[derive(Debug, Clone)]
pub(crate) struct Treatment {
    pub(crate) class: Arc<Class>,
    pub(crate) priority: u8,
    /// The block without which it is of no use.
    pub(crate) after: Option<BlockId>,
}

/// By how much what matters less comes after what matters most: as `punctual send` has it.
const STEP: u8 = 64;

impl Classifier {
    pub(crate) fn new(carried: Arc<Carried>) -> Self {
        Self {
            carried,
            stream: TransportStream::default(),
            frames: FrameSet::default(),
            of_frame: false,
            generation: 0,
        }
    }

    /// Goes by other settings from now on. What is known of the media stays.
    pub(crate) fn replace(&mut self, carried: Arc<Carried>) {
        self.carried = carried;
    }

    /// How a datagram is carried that goes by a session of that generation.
    pub(crate) fn classify(&mut self, datagram: &[u8], origin: Origin, generation: u64) -> Treatment {
        if generation != self.generation {
            self.generation = generation;
            self.frames.clear();
        }
        let rule = self.carried.rules.iter().find(|(rule, _)| rule.holds(datagram, origin));
        let class = rule.map_or(&self.carried.class, |(_, class)| class).clone();
        let (later, after) = self.look(datagram);
        Treatment { priority: class.priority.saturating_add(later), class, after }
    }

    /// By how much it matters less, and what it depends on.
    fn look(&mut self, datagram: &[u8]) -> (u8, Option<BlockId>) {
        self.of_frame = false;
        match self.carried.format {
            Format::Datagrams => (0, None),
            Format::TransportStream => (self.stream.weigh(datagram).map_or(0, of_stream), None),
            Format::Rtp(codec) => match Packet::parse(datagram) {
                Some(packet) if packet.is_transport_stream() => {
                    (self.stream.weigh(packet.payload).map_or(0, of_stream), None)
                }
                Some(packet) => {
                    self.of_frame = true;
                    let (picture, after) = self.frames.next(&packet, codec);
                    (picture.map_or(if codec.is_some() { STEP } else { 0 }, of_picture), after)
                }
                // RTCP, which is small, and without which nothing is in time.
                None => (0, None),
            },
        }
    }

    /// Names the block of the datagram that was seen last.
    pub(crate) fn sent(&mut self, id: BlockId) {
        // What comes between, RTCP say, is nothing that the rest of a frame needs.
        if self.of_frame {
            self.frames.named(id);
        }
    }
}

fn of_picture(picture: Picture) -> u8 {
    match picture {
        Picture::Key => 0,
        Picture::Reference => STEP,
        Picture::Disposable => 2 * STEP,
    }
}

/// Of a transport stream, sound is before video.
fn of_stream(weight: Weight) -> u8 {
    match weight {
        Weight::Tables | Weight::Audio => 0,
        Weight::Other => STEP / 2,
        Weight::Video(picture) => STEP / 2 + of_picture(picture),
        Weight::Nothing => u8::MAX,
    }
}

impl Treatment {
    /// The block of a word.
    pub(crate) fn block(&self, payload: bytes::Bytes) -> Block {
        let mut block = Block::new(payload).priority(self.priority);
        (block.deadline, block.redundancy) = (self.class.deadline, self.class.redundancy);
        block.dependencies.extend(self.after);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classifier(format: Format, rules: Vec<(Rule, Arc<Class>)>) -> Classifier {
        let class = Arc::new(ClassSettings::default().class("all", format));
        Classifier::new(Arc::new(Carried { format, class, rules }))
    }

    fn somewhere() -> Origin {
        Origin { program: "10.1.2.3:4000".parse().unwrap(), dscp: None }
    }

    fn rtp(marker: bool, timestamp: u8, payload: &[u8]) -> Vec<u8> {
        [&[0x80, u8::from(marker) << 7 | 96, 0, 1, 0, 0, 0, timestamp, 0, 0, 0, 9], payload].concat()
    }

    #[test]
    fn packets_of_a_frame_depend_on_each_other_within_one_session() {
        let mut classifier = classifier(Format::Rtp(Some(Codec::H264)), Vec::new());
        let mut see = |datagram: Vec<u8>, generation, id| {
            let Treatment { priority, after, .. } = classifier.classify(&datagram, somewhere(), generation);
            classifier.sent(BlockId(id));
            (priority, after)
        };
        assert_eq!(see(rtp(false, 1, &[0x65]), 1, 0), (0, None));
        assert_eq!(see(rtp(false, 1, &[0x65]), 1, 1), (0, Some(BlockId(0))));
        assert_eq!(see(rtp(true, 1, &[0x65]), 2, 2), (0, None), "the block before was another session's");
        assert_eq!(see(rtp(true, 2, &[0x41, 0x98]), 2, 3), (64, None));
        assert_eq!(see(rtp(true, 3, &[0x01, 0x98]), 2, 4), (128, None));
        assert_eq!(see(vec![0x80, 200, 0, 0], 2, 5), (0, None), "RTCP");
        assert_eq!(see(rtp(false, 4, &[0x65]), 2, 6), (0, None));
        assert_eq!(see(vec![0x80, 200, 0, 0], 2, 7), (0, None), "RTCP, between packets of a frame");
        assert_eq!(see(rtp(true, 4, &[0x65]), 2, 8), (0, Some(BlockId(6))));
    }

    #[test]
    fn the_first_rule_that_holds_says_the_class() {
        let class = |name: &str| Arc::new(ClassSettings::default().class(name, Format::Datagrams));
        let rule = |text: &str| toml::from_str::<Rule>(text).unwrap();
        let rules = [
            ("a", "class = 'a'\nfrom = '10.1.0.0/16'\nport = 4000\nmax-size = 10"),
            ("b", "class = 'b'\npayload-type = 96"),
            ("c", "class = 'c'\nfrom = '192.0.2.1'\nmin-size = 100"),
            ("d", "class = 'd'\ndscp = 'ef'\nfrom = '198.51.100.0/24'"),
            ("e", "class = 'e'\ndscp = 34\nfrom = '198.51.100.0/24'"),
        ];
        let rules = rules.map(|(name, text)| (rule(text), class(name)));
        let mut classifier = classifier(Format::Datagrams, rules.into());
        let mut of = |datagram: &[u8], from: &str| {
            classifier
                .classify(datagram, Origin { program: from.parse().unwrap(), dscp: Some(46) }, 1)
                .class
                .name
                .to_string()
        };
        assert_eq!(of(&[0; 10], "10.1.9.9:4000"), "a");
        assert_eq!(of(&[0; 11], "10.1.9.9:4000"), "all");
        assert_eq!(of(&[0; 10], "10.2.9.9:4000"), "all");
        assert_eq!(of(&rtp(false, 1, b""), "10.1.2.3:4000"), "b");
        assert_eq!((of(&[0; 100], "192.0.2.1:1"), of(&[0; 99], "192.0.2.1:1")), ("c".into(), "all".into()));
        assert_eq!(of(&[0; 10], "198.51.100.1:1"), "d");
    }

    #[test]
    fn marks_have_names() {
        assert_eq!(["ef", "cs0", "cs5", "af11", "af41"].map(named), [46, 0, 40, 10, 34].map(Some));
        for bad in ["", "e", "cs8", "cs", "af44", "af01", "af1", "af111", "xx"] {
            assert_eq!(named(bad), None, "{bad}");
        }
        for bad in ["64", "-1", "'ef1'", "1.5"] {
            assert!(toml::from_str::<Rule>(&format!("class = 'x'\ndscp = {bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn media_have_priorities_to_go_down_from_and_a_stream_its_order() {
        let class = |format| ClassSettings::default().class("x", format);
        assert_eq!((class(Format::Datagrams).priority, class(Format::Datagrams).ordered), (128, false));
        assert_eq!((class(Format::TransportStream).priority, class(Format::TransportStream).ordered), (0, true));
        let none = ClassSettings { deadline: Some(Deadline(None)), ..Default::default() };
        assert_eq!(none.class("x", Format::Datagrams).deadline, None);
        assert_eq!(class(Format::Datagrams).deadline, Some(DEFAULT_DEADLINE));
    }

    #[test]
    fn settings_say_what_is_wrong_with_them() {
        let mut settings = ClassSettings::default();
        for (key, bad) in [
            ("deadline", "1us"),
            ("deadline", "soon"),
            ("priority", "256"),
            ("redundancy", "much"),
            ("ordered", "yes"),
            ("latency", "0"),
            ("latency", "11s"),
        ] {
            assert!(settings.set(key, bad).is_err(), "{key}={bad}");
        }
        assert_eq!(settings.set("colour", "red"), Ok(false));
        assert_eq!(settings, ClassSettings::default());
    }
}
