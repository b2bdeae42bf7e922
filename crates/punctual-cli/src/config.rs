//! Settings of a sender, from flags and from a TOML file of the same names.

use std::{collections::BTreeMap, fs, path::Path, path::PathBuf, time::Duration};

use clap::Args;
use punctual::{
    Block, Config, Fingerprint, LookupError, Parameter, Redundancy, congestion, duration, multipath, redundancy,
    schedule,
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use crate::{exit::Failure, route::Way};
use place::{line_of, located, not_read};

mod place;

/// What a sender can be told by flag and by file. A flag overrules the file.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Settings")]
pub(crate) struct Settings {
    /// How long a block may take from being read to being delivered; without it, as long as it takes. Of a live input (a pipe), it counts from
    /// the first byte of the block. Frames of a video that others refer to are sent for twice as long, for late they still save those.
    #[arg(long, value_name = "TIME", value_parser = parse_deadline, allow_hyphen_values = true)]
    #[serde(deserialize_with = "deadline")]
    pub(crate) deadline: Option<Duration>,
    /// Ask the receiver to give each block out so long after it was read here, and to pass over what is not there by then; its own --latency has the last word. At least the deadline, or what
    /// comes in time may be passed over.
    #[arg(long, value_name = "TIME", value_parser = parse_latency, allow_hyphen_values = true)]
    #[serde(deserialize_with = "latency")]
    pub(crate) latency: Option<Duration>,
    /// 0 is the highest, 255 the lowest. Of a video, that of the I frames (default 0); P frames come 64, B frames 128 after. Others: 128.
    #[arg(long, value_name = "0-255")]
    pub(crate) priority: Option<u8>,
    /// The channel of the blocks, whose order it keeps [default: 0]. What is in another channel is not waited for.
    #[arg(long, value_name = "NUMBER", conflicts_with = "unordered")]
    pub(crate) channel: Option<u32>,
    /// Frames per second of a video that keeps its beat, if the stream does not say or is wrong.
    #[arg(long, value_name = "RATE", value_parser = parse_fps)]
    #[serde(deserialize_with = "fps")]
    pub(crate) fps: Option<f64>,
    /// Those of the session. A file has them beside the others.
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) session: SessionSettings,
    /// If a session is lost because nothing is heard from the receiver any more (no path answers, say), or it was killed and started again with the same --identity, connect again as soon as there is a way, and go on with what has
    /// not been delivered and is not too late; give up after so long [default: 30s; 0s does not try]. A receiver that is to let the sender in again needs
    /// --keep-going or an output with a placeholder. What was delivered last may be sent twice.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    #[serde(deserialize_with = "time")]
    pub(crate) reconnect: Option<Duration>,
    /// How long to wait at the end for blocks under way, and for the receiver to have taken all [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    #[serde(deserialize_with = "time")]
    pub(crate) finish_timeout: Option<Duration>,
}

/// What whoever begins a session can be told of it, by flag and by file.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Session")]
pub(crate) struct SessionSettings {
    /// A local interface or address to send from; LOCAL=HOST:PORT sends from there to another address of the receiver. `auto` stands for
    /// every interface with a route to the receiver, as they come and go. May be repeated: all are tried at once, the session begins on the
    /// first that answers and uses all; what is down, or falls silent, is tried again for as long as it lives. Without it, the system chooses one.
    ///
    /// Behind a comma it may have a role: `wwan0,backup` carries no data, either way, while another path lives; `wlan0,preferred` comes before all others
    /// while it is surely enough. A cost per byte in any unit, `wwan0,cost=2`: dear paths carry what cheap ones would not carry in time. And a budget, `wwan0,budget=10MB/1min`: so much may be
    /// sent there in such a time, half of it whenever it is asked for, the rest when others would be late.
    #[arg(long, value_name = "LOCAL[=HOST:PORT][,ROLE][,cost=N][,budget=BYTES/TIME]")]
    pub(crate) path: Vec<String>,
    /// Which block goes next, with parameters if need be: `ads:alpha=0.3`.
    #[arg(long, value_name = "NAME", help = scheduler_help())]
    pub(crate) scheduler: Option<String>,
    /// Which path it takes.
    #[arg(long, value_name = "NAME", help = path_scheduler_help())]
    pub(crate) path_scheduler: Option<String>,
    /// How fast each path is driven.
    #[arg(long, value_name = "NAME", help = format!("How fast each path is driven: {}", list(congestion::names())))]
    pub(crate) congestion: Option<String>,
    /// How blocks are protected against loss.
    #[arg(long, value_name = "MODE", help = redundancy_help(), long_help = redundancy_long_help())]
    #[serde(deserialize_with = "mode")]
    pub(crate) redundancy: Option<Redundancy>,
    /// How many repair fragments there are.
    #[arg(long, value_name = "NAME", help = policy_help(), long_help = policy_long_help())]
    pub(crate) redundancy_policy: Option<String>,
    /// The receiver's certificate has this fingerprint, as `punctual recv` prints it. Without this and --ca, it must be one that the
    /// system trusts.
    #[arg(long, value_name = "HEX", conflicts_with = "ca")]
    pub(crate) fingerprint: Option<String>,
    /// The receiver's certificate is signed by one of the authorities in this file (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// A token that the receiver lets us in by (its --token): the file that it is in, or, with `@` before the name, the variable of the environment. It is shown
    /// only when it is certain that it is the receiver that we trust. `openssl rand -hex 32` makes one.
    #[arg(long, value_name = "FILE|@NAME")]
    pub(crate) token: Option<String>,
    /// How long to wait for the receiver to answer [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = parse_wait, allow_hyphen_values = true)]
    #[serde(deserialize_with = "wait")]
    pub(crate) connect_timeout: Option<Duration>,
    /// The session is lost if nothing is heard from the receiver for so long [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = parse_wait, allow_hyphen_values = true)]
    #[serde(deserialize_with = "wait")]
    pub(crate) idle_timeout: Option<Duration>,
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    if let Some(first) = names.first_mut() {
        *first += " (default)";
    }
    names.join(", ")
}

fn scheduler_help() -> String {
    format!("Which block goes next, with parameters if need be (ads:alpha=0.3): {}", list(schedule::names()))
}

fn path_scheduler_help() -> String {
    format!("Which path it takes: {}", list(multipath::names()))
}

fn redundancy_help() -> String {
    format!("How blocks are protected against loss: {}", list(Redundancy::ALL.into_iter().map(Redundancy::name)))
}

fn redundancy_long_help() -> String {
    let modes = Redundancy::ALL.map(|mode| format!("  {:<10}  {}", mode.name(), about(mode)));
    let heading = "How blocks are protected against loss:";
    let rest = "How many repair fragments there are is --redundancy-policy's to say.";
    format!("{heading}\n{}\n{rest}", modes.join("\n"))
}

/// What a mode does, in a line.
fn about(mode: Redundancy) -> &'static str {
    match mode {
        Redundancy::Auto => "sent again if lost; repair fragments where that would be late (default)",
        Redundancy::None => "a block of which a packet is lost is dropped",
        Redundancy::Fec => "repair fragments, nothing sent again",
        Redundancy::Retransmit => "sent again if lost, no repair fragments",
        Redundancy::Both => "repair fragments, and sent again if they are not enough",
        Redundancy::Duplicate => "everything twice, over two paths if there are two",
        _ => "see the library",
    }
}

fn policy_help() -> String {
    let about = "How many repair fragments there are, with parameters if need be (risk:target=0.01)";
    format!("{about}: {}", list(redundancy::names()))
}

fn policy_long_help() -> String {
    let parameter = |parameter: &Parameter| format!("{}={}, {}", parameter.name, parameter.default, parameter.about);
    let policies = redundancy::REGISTRY.iter().map(|entry| {
        let parameters = entry.parameters.iter().map(parameter).collect::<Vec<_>>().join("; ");
        let parameters = if parameters.is_empty() { parameters } else { format!(" ({parameters})") };
        format!("  {:<4}  {}{parameters}", entry.name, entry.about)
    });
    let policies: Vec<String> = policies.collect();
    let heading =
        "How many repair fragments there are, with parameters if need be (risk:target=0.01); the first is the default:";
    format!("{heading}\n{}", policies.join("\n"))
}

impl Settings {
    /// The flags over what the file says, if there is one.
    pub(crate) fn load(flags: &Self, file: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = file else { return Ok(flags.clone()) };
        let text = fs::read_to_string(path).map_err(|error| Failure::file("read", path, error))?;
        let file = Self::parse(&text).map_err(|error| Failure::Usage(format!("{}{error}", path.display())))?;
        Ok(flags.clone().or(file))
    }

    /// Reads TOML. The error begins with the line, to be put behind the file's name.
    fn parse(text: &str) -> Result<Self, String> {
        let read = || {
            let session = toml::from_str(text)?;
            let own = Self { session, ..toml::from_str(text)? };
            let keys: Keys = toml::from_str(text)?;
            Ok((own, keys))
        };
        let (own, keys): (Self, Keys) = read().map_err(|error| not_read::<Self>(text, &error))?;
        unknown_key::<Self>(text, &keys)?;
        own.session.check_each(text, &keys)?;
        Ok(own)
    }

    fn or(self, file: Self) -> Self {
        Self {
            deadline: self.deadline.or(file.deadline),
            latency: self.latency.or(file.latency),
            priority: self.priority.or(file.priority),
            channel: self.channel.or(file.channel),
            fps: self.fps.or(file.fps),
            session: self.session.or(file.session),
            reconnect: self.reconnect.or(file.reconnect),
            finish_timeout: self.finish_timeout.or(file.finish_timeout),
        }
    }

    /// For how long to try to connect again.
    pub(crate) fn reconnect(&self) -> Duration {
        self.reconnect.unwrap_or(Duration::from_secs(30))
    }

    /// How long blocks under way may take at the end.
    pub(crate) fn finish_timeout(&self) -> Duration {
        self.finish_timeout.unwrap_or(Duration::from_secs(10))
    }
}

/// The keys of a table, and where they are.
pub(crate) type Keys = BTreeMap<toml::Spanned<String>, serde::de::IgnoredAny>;

/// Whether each key is the name of a flag.
fn unknown_key<Flags: Args>(text: &str, keys: &Keys) -> Result<(), String> {
    let flags = Flags::augment_args(clap::Command::new("settings"));
    let known: Vec<&str> = flags.get_arguments().filter_map(|flag| flag.get_long()).collect();
    match keys.keys().find(|key| !known.contains(&key.get_ref().as_str())) {
        None => Ok(()),
        Some(key) => {
            let message = format!("unknown field `{}`; there are {}", key.get_ref(), known.join(", "));
            Err(located(text, Some(key.span()), &message))
        }
    }
}

/// Of a file that has settings of a session in a table, the names of these.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SessionKeys {
    session: Keys,
}

/// The same, of what they say.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WithSession {
    session: SessionSettings,
}

/// What a gateway's file says, which has settings of its session in a table `session`; without a file, what is said by none.
pub(crate) fn read_file<File: DeserializeOwned + Default>(path: Option<&Path>) -> Result<File, Failure> {
    let Some(path) = path else { return Ok(File::default()) };
    let text = fs::read_to_string(path).map_err(|error| Failure::file("read", path, error))?;
    parse_file(&text).map_err(|error| Failure::Usage(format!("{}{error}", path.display())))
}

/// The error begins with the line, to be put behind the file's name.
fn parse_file<File: DeserializeOwned>(text: &str) -> Result<File, String> {
    let read = || Ok((toml::from_str(text)?, toml::from_str(text)?));
    let (file, SessionKeys { session }) = read().map_err(|error| not_read::<File>(text, &error))?;
    unknown_key::<SessionSettings>(text, &session)?;
    let WithSession { session: settings } =
        toml::from_str(text).map_err(|error| not_read::<WithSession>(text, &error))?;
    settings.check_each(text, &session)?;
    Ok(file)
}

/// What is wrong with a setting that was read from there, if from a file. A setting is said with the tables that it is in: `limits.flows`.
pub(crate) fn wrong(path: Option<&Path>, what: &str, error: &dyn std::fmt::Display) -> Failure {
    let Some(path) = path else { return Failure::Usage(error.to_string()) };
    Failure::Usage(format!("{}: {what}: {error}", place(path, Some(what))))
}

/// That settings make no sense together, or one that was looked at with others does not.
pub(crate) fn senseless(path: Option<&Path>, setting: Option<&str>, error: &dyn std::fmt::Display) -> Failure {
    let Some(path) = path else { return Failure::Usage(error.to_string()) };
    Failure::Usage(format!("{}: it makes no sense: {error}", place(path, setting)))
}

/// A file, and the line of a setting in it, if it has one.
fn place(path: &Path, setting: Option<&str>) -> String {
    let line = setting.and_then(|setting| line_of(&fs::read_to_string(path).ok()?, setting));
    line.map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display()))
}

/// Why who waits has no such setting.
pub(crate) const FOR_CALLERS: &str = "that is for who calls, and this one waits";

/// Whether a session that is waited for can have these settings; the first that it cannot.
pub(crate) fn check_waiting(session: &SessionSettings) -> Result<(), &'static str> {
    let SessionSettings { path, fingerprint, ca, .. } = session;
    let said = [
        ("session.path", !path.is_empty()),
        ("session.fingerprint", fingerprint.is_some()),
        ("session.ca", ca.is_some()),
    ];
    said.into_iter().find(|(_, said)| *said).map_or(Ok(()), |(name, _)| Err(name))
}

impl SessionSettings {
    /// These, and what they leave open as `file` has it.
    pub(crate) fn or(self, file: Self) -> Self {
        let trusted = self.fingerprint.is_some() || self.ca.is_some();
        Self {
            path: if self.path.is_empty() { file.path } else { self.path },
            scheduler: self.scheduler.or(file.scheduler),
            path_scheduler: self.path_scheduler.or(file.path_scheduler),
            congestion: self.congestion.or(file.congestion),
            redundancy: self.redundancy.or(file.redundancy),
            redundancy_policy: self.redundancy_policy.or(file.redundancy_policy),
            // One kind of trust replaces the other.
            fingerprint: if trusted { self.fingerprint } else { file.fingerprint },
            ca: if trusted { self.ca } else { file.ca },
            token: self.token.or(file.token),
            connect_timeout: self.connect_timeout.or(file.connect_timeout),
            idle_timeout: self.idle_timeout.or(file.idle_timeout),
        }
    }

    /// Whether each that a file says makes sense by itself; that it does not is said with its line.
    fn check_each(&self, text: &str, keys: &Keys) -> Result<(), String> {
        let bad = |name: &str, error: &dyn std::fmt::Display| {
            let key = keys.keys().find(|key| key.get_ref() == name);
            located(text, key.map(toml::Spanned::span), &format!("{name}: {error}"))
        };
        for path in &self.path {
            Way::parse(path, "receiver:1").map_err(|error| {
                // A file has no flags.
                let error = error.to_string();
                bad("path", &error.strip_prefix("--path ").unwrap_or(&error))
            })?;
        }
        let named = [
            ("scheduler", self.scheduler.as_deref().map(|name| schedule::by_name(name).map(drop))),
            ("path-scheduler", self.path_scheduler.as_deref().map(|name| multipath::by_name(name).map(drop))),
            ("congestion", self.congestion.as_deref().map(|name| congestion::by_name(name).map(drop))),
            ("redundancy-policy", self.redundancy_policy.as_deref().map(|name| redundancy::by_name(name).map(drop))),
        ];
        for (name, found) in named {
            found.unwrap_or(Ok(())).map_err(|error| bad(name, &error))?;
        }
        if let Some(fingerprint) = &self.fingerprint {
            fingerprint.parse::<Fingerprint>().map_err(|error| bad("fingerprint", &error))?;
            if self.ca.is_some() {
                return Err(bad("ca", &"say either fingerprint or ca"));
            }
        }
        Ok(())
    }

    /// How long the receiver may take to answer.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(Duration::from_secs(5))
    }

    /// How long the receiver may be silent.
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.idle_timeout.unwrap_or(IDLE_TIMEOUT)
    }

    /// As the library wants it.
    pub(crate) fn endpoint_config(&self, qlog: Option<&Path>) -> Result<Config, Failure> {
        let mut config = endpoint_config(qlog).connect_timeout(self.connect_timeout());
        config.session.idle_timeout = self.idle_timeout();
        // Often enough that one lost packet is not the end.
        config.session.keep_alive = (config.session.idle_timeout / 4).min(config.session.keep_alive);
        if let Some(name) = &self.scheduler {
            config.session.scheduler = schedule::by_name(name).map_err(misnamed)?;
        }
        if let Some(name) = &self.path_scheduler {
            config.session.path_scheduler = multipath::by_name(name).map_err(misnamed)?;
        }
        if let Some(name) = &self.congestion {
            config.session.congestion = congestion::by_name(name).map_err(misnamed)?;
        }
        if let Some(mode) = self.redundancy {
            config.session.redundancy = mode;
        }
        if let Some(name) = &self.redundancy_policy {
            config.session.redundancy_policy = redundancy::by_name(name).map_err(misnamed)?;
        }
        Ok(config)
    }
}

/// What is wrong with the name of something that is chosen by name.
fn misnamed(error: LookupError) -> Failure {
    Failure::Usage(error.to_string())
}

/// As long as a person waits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The library's defaults, with qlog if it is wanted.
pub(crate) fn endpoint_config(qlog: Option<&Path>) -> Config {
    match qlog {
        Some(dir) => Config::default().qlog_dir(dir),
        None => Config::default(),
    }
}

/// A time such as `150ms` or `2s`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).map_err(|error| error.to_string())?;
    if time <= LONGEST { Ok(time) } else { Err(format!("`{text}` is longer than a hundred years")) }
}

/// Any clock has room for this.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

/// How long to wait for somebody.
pub(crate) fn parse_wait(text: &str) -> Result<Duration, String> {
    let wait = parse_duration(text)?;
    if wait.is_zero() { Err("it must be longer than nothing".into()) } else { Ok(wait) }
}

/// A time that a block may have.
pub(crate) fn parse_deadline(text: &str) -> Result<Duration, String> {
    let deadline = parse_duration(text)?;
    if deadline < Block::MIN_DEADLINE { Err("a deadline is 1ms or more".into()) } else { Ok(deadline) }
}

/// How long after its hand-over a block is given out.
pub(crate) fn parse_latency(text: &str) -> Result<Duration, String> {
    let latency = parse_duration(text)?;
    let longest = Duration::from_secs(600);
    if latency <= longest { Ok(latency) } else { Err("a latency is 10min or less".into()) }
}

fn parse_fps(text: &str) -> Result<f64, String> {
    let rate = text.parse().map_err(|_| "expected a number, such as 29.97".to_owned())?;
    if (0.1..=1000.0).contains(&rate) { Ok(rate) } else { Err("a frame rate is between 0.1 and 1000".into()) }
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
}

fn wait<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_wait(&text).map(Some).map_err(serde::de::Error::custom)
}

fn deadline<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_deadline(&text).map(Some).map_err(serde::de::Error::custom)
}

fn latency<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_latency(&text).map(Some).map_err(serde::de::Error::custom)
}

fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Redundancy>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

fn fps<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let rate = f64::deserialize(from)?;
    parse_fps(&rate.to_string()).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_flags_say() {
        let settings = Settings::parse(
            "deadline = \"150ms\"\npriority = 64\nfps = 29.97\npath = [\"eth0\", \"wlan0=198.51.100.7:4433\"]\n\
             scheduler = \"edf\"\npath-scheduler = \"lowest-rtt\"\ncongestion = \"cubic\"\n\
             redundancy = \"fec\"\nredundancy-policy = \"dmtp:cap=0.3\"\nca = \"ca.pem\"\nconnect-timeout = \"3s\"\n",
        )
        .unwrap();
        assert_eq!(settings.deadline, Some(Duration::from_millis(150)));
        assert_eq!(settings.session.path.len(), 2);
        assert_eq!(settings.session.connect_timeout(), Duration::from_secs(3));
        assert_eq!(settings.finish_timeout(), Duration::from_secs(10));
        let config = settings.session.endpoint_config(None).unwrap();
        assert_eq!(config.session.redundancy, Redundancy::Fec);
        assert_eq!((config.session.redundancy_policy)().name(), "dmtp");
    }

    #[test]
    fn an_error_names_its_line_on_one_line() {
        for (text, line, word) in [
            ("priority = 1\ndeadlin = \"1s\"", ":2: ", "deadlin"),
            ("priority = 256", ":1: ", "256"),
            ("\n\npriority = ", ":3: ", ""),
            ("deadline = 150", ":1: ", "string"),
            ("deadline = \"1us\"", ":1: ", "1ms"),
            ("fps = 0", ":1: ", "frame rate"),
            ("connect-timeout = \"soon\"", ":1: ", "150ms"),
            ("redundancy = \"much\"", ":1: ", "choose one of: auto, none"),
            ("priority = 1\nscheduler = \"magic\"", ":2: ", "scheduler: no scheduler is called `magic`"),
            ("path-scheduler = \"magic\"", ":1: ", "magic"),
            ("\ncongestion = \"magic\"", ":2: ", "magic"),
            ("redundancy-policy = \"risk:target=9\"", ":1: ", "does not do for"),
            ("\npath = [\"eth0\", \"wwan0,bakup\"]", ":2: ", "path: wwan0,bakup: "),
            ("fingerprint = \"3f9a\"", ":1: ", "fingerprint: a fingerprint is 64"),
        ] {
            let error = Settings::parse(text).unwrap_err();
            assert!(error.starts_with(line) && error.contains(word) && !error.contains('\n'), "{text:?}: {error}");
        }
    }

    #[test]
    fn flags_overrule_the_file() {
        let file = Settings::parse("priority = 1\ndeadline = \"1s\"\nca = \"ca.pem\"\npath = [\"a\"]").unwrap();
        let session = SessionSettings { fingerprint: Some("ab".into()), ..SessionSettings::default() };
        let flags = Settings { priority: Some(2), session, ..Settings::default() };
        let both = flags.or(file);
        assert_eq!((both.priority, both.deadline), (Some(2), Some(Duration::from_secs(1))));
        let session = both.session;
        assert_eq!((session.fingerprint.as_deref(), session.ca), (Some("ab"), None), "trust is one or the other");
        assert_eq!(session.path, ["a"]);
    }

    #[test]
    fn a_deadline_is_a_millisecond_or_more() {
        assert!(parse_deadline("-5ms").unwrap_err().contains("negative"));
        // As a message may say of itself: no clock could be asked whether it is too late.
        assert!(parse_deadline("10000000000000000000s").unwrap_err().contains("a hundred years"));
        assert!(parse_wait("18000000000000000000s").is_err() && parse_wait("100h").is_ok());
        assert!(parse_deadline("0ms").unwrap_err().contains("1ms or more"));
        assert!(parse_deadline("--lines").is_err());
    }

    #[test]
    fn what_is_chosen_by_name_is_called_what_it_is() {
        let error = |settings: SessionSettings| settings.endpoint_config(None).err().unwrap().to_string();
        let policy =
            |name: &str| error(SessionSettings { redundancy_policy: Some(name.into()), ..SessionSettings::default() });
        assert!(policy("risk:size=1").starts_with("redundancy policy `risk` has no parameter `size`"));
        assert!(
            policy("risk:target=9").contains("does not do for redundancy policy `risk`"),
            "{}",
            policy("risk:target=9")
        );
        let path = error(SessionSettings { path_scheduler: Some("magic".into()), ..SessionSettings::default() });
        assert!(path.starts_with("no path scheduler is called `magic`"), "{path}");
    }

    #[test]
    fn names_that_do_not_exist_are_answered_with_those_that_do() {
        for settings in [
            SessionSettings { scheduler: Some("magic".into()), ..SessionSettings::default() },
            SessionSettings { path_scheduler: Some("magic".into()), ..SessionSettings::default() },
            SessionSettings { congestion: Some("magic".into()), ..SessionSettings::default() },
            SessionSettings { redundancy_policy: Some("magic".into()), ..SessionSettings::default() },
        ] {
            let error = settings.endpoint_config(None).err().unwrap();
            assert_eq!(error.code(), 2);
            assert!(error.to_string().contains("choose one of"), "{error}");
        }
    }
}
