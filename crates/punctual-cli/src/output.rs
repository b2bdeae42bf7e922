//! Which output a sender's blocks go to.
//!
//! Either there is one for all, which one sender has at a time, or each has its own, by a name with placeholders. Which of the two
//! it is, and what the names are like, is for the command line alone to say: it does not depend on who else is there.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::ErrorKind,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use crate::{
    cli::RecvArgs,
    exit::Failure,
    sink::{Sink, Target},
};

/// All there is to write to.
pub(crate) enum Outputs {
    /// For one sender after the other.
    One(Arc<Sink>),
    /// For any number at once.
    Each(Naming),
}

/// Why a sender gets no output.
#[derive(Debug)]
pub(crate) enum NoOutput {
    /// Another sender has it.
    Busy,
    /// It cannot be opened.
    Failed(Failure),
}

impl Outputs {
    /// What the command line names. What there is one of is opened now, so that a mistake is seen at once.
    pub(crate) fn open(args: &RecvArgs) -> Result<Self, Failure> {
        let file = args.out.as_deref().filter(|path| *path != Path::new("-"));
        let (path, kind) = match (&args.dir, file) {
            (Some(dir), _) => (dir.as_path(), Kind::Dir),
            (None, Some(file)) => (file, Kind::File),
            (None, None) => return Ok(Self::One(Arc::new(Sink::open(Target::stdout(), args.framed)?))),
        };
        let mut pattern = Pattern::parse(path)?;
        if args.keep_going && kind == Kind::Dir && !pattern.is_for_each() {
            pattern = Pattern::parse(&path.join("{number}-{peer}"))?;
        }
        if pattern.is_for_each() {
            let naming = Naming { pattern, kind, framed: args.framed, next: 1, taken: HashMap::new() };
            naming.check()?;
            return Ok(Self::Each(naming));
        }
        let target = match kind {
            Kind::Dir => Target::dir(path)?,
            Kind::File => Target::file(path)?,
        };
        Ok(Self::One(Arc::new(Sink::open(target, args.framed)?)))
    }

    /// Empties what there is one of: from here on senders may come.
    pub(crate) fn begin(&self) -> Result<(), Failure> {
        match self {
            Self::One(sink) => sink.begin(),
            Self::Each(_) => Ok(()),
        }
    }

    /// Whether each sender has its own.
    pub(crate) fn is_for_each(&self) -> bool {
        matches!(self, Self::Each(_))
    }

    /// The output of a new sender, who has it until the sink is dropped.
    pub(crate) fn take(&mut self, peer: SocketAddr) -> Result<Arc<Sink>, NoOutput> {
        match self {
            // We hold it once, and whoever is served holds it, too.
            Self::One(sink) if Arc::strong_count(sink) > 1 => Err(NoOutput::Busy),
            Self::One(sink) => Ok(sink.clone()),
            Self::Each(naming) => naming.open(peer),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Dir,
}

/// Makes an output for each sender.
pub(crate) struct Naming {
    pattern: Pattern,
    kind: Kind,
    framed: bool,
    /// The first number that may be free.
    next: u64,
    /// Names without a number that have been in use: how often, and by whom last.
    taken: HashMap<PathBuf, (u64, Weak<Sink>)>,
}

impl Naming {
    /// The part of the name that all have in common must be a directory that is there, or, of directories, can be made.
    fn check(&self) -> Result<(), Failure> {
        let common = self.pattern.common_directory();
        match self.kind {
            Kind::Dir => make_directories(common),
            Kind::File if common.is_dir() || common == Path::new("") => Ok(()),
            Kind::File => Err(Failure::file("write to the directory", common, "there is none")),
        }
    }

    fn open(&mut self, peer: SocketAddr) -> Result<Arc<Sink>, NoOutput> {
        let framed = self.framed;
        let open = |target| Sink::open(target, framed).map(Arc::new).map_err(NoOutput::Failed);
        if self.pattern.is_numbered() {
            return self.numbered(peer).and_then(open);
        }
        let name = self.pattern.name(self.next, peer);
        let times = match self.taken.get(&name) {
            Some((_, sink)) if sink.strong_count() > 0 => return Err(NoOutput::Busy),
            Some(&(times, _)) => times + 1,
            None => 1,
        };
        let (target, times) = self.named(&name, times)?;
        let sink = open(target)?;
        self.taken.insert(name, (times, Arc::downgrade(&sink)));
        Ok(sink)
    }

    /// The first number of which there is nothing yet: not even an earlier run's file is overwritten.
    fn numbered(&mut self, peer: SocketAddr) -> Result<Target, NoOutput> {
        loop {
            let path = self.pattern.name(self.next, peer);
            self.next += 1;
            if let Some(target) = self.make_new(&path)? {
                return Ok(target);
            }
        }
    }

    /// What was written under a name before is not begun anew, be it by an earlier run: a sender that connects again goes on behind it.
    fn named(&self, name: &Path, first: u64) -> Result<(Target, u64), NoOutput> {
        let mut times = first;
        loop {
            let path = if times == 1 { name.to_owned() } else { self.pattern.again(name, times) };
            if let Some(target) = self.make_new(&path)? {
                return Ok((target, times));
            }
            times += 1;
        }
    }

    /// A new output; `None` if there is something of that name.
    fn make_new(&self, path: &Path) -> Result<Option<Target>, NoOutput> {
        self.make_room(path).map_err(NoOutput::Failed)?;
        let made = match self.kind {
            Kind::File => File::create_new(path).map(|file| Target::made_file(path, file)),
            Kind::Dir => fs::create_dir(path).map(|()| Target::made(path)),
        };
        match made {
            Ok(target) => Ok(Some(target)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(NoOutput::Failed(Failure::file("write", path, error))),
        }
    }

    /// Directories whose own names have placeholders are made as they are needed.
    fn make_room(&self, path: &Path) -> Result<(), Failure> {
        path.parent().filter(|parent| *parent != Path::new("")).map_or(Ok(()), make_directories)
    }
}

fn make_directories(path: &Path) -> Result<(), Failure> {
    if path == Path::new("") {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|error| Failure::file("make the directory", path, error))
}

/// A path in which `{number}` stands for the sender's number and `{peer}` for its address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    path: PathBuf,
    numbered: bool,
    addressed: bool,
}

impl Pattern {
    fn parse(path: &Path) -> Result<Self, Failure> {
        // What is not text has no placeholders.
        let text = path.to_str().unwrap_or_default();
        for part in text.split('{').skip(1) {
            let name = part.split_once('}').map(|(name, _)| name);
            if !matches!(name, Some("number" | "peer")) {
                let path = path.display();
                return Err(Failure::Usage(format!("{path}: of placeholders there are {{number}} and {{peer}} only")));
            }
        }
        let has = |placeholder| text.contains(placeholder);
        Ok(Self { path: path.to_owned(), numbered: has("{number}"), addressed: has("{peer}") })
    }

    fn is_numbered(&self) -> bool {
        self.numbered
    }

    fn is_for_each(&self) -> bool {
        self.numbered || self.addressed
    }

    fn name(&self, number: u64, peer: SocketAddr) -> PathBuf {
        let Some(text) = self.path.to_str() else { return self.path.clone() };
        text.replace("{number}", &format!("{number:04}")).replace("{peer}", &peer_name(peer)).into()
    }

    /// A name for the same sender's second session, or third: `-2` before what comes behind its last dot, if that is no part of an address.
    fn again(&self, name: &Path, times: u64) -> PathBuf {
        let extension = self.path.extension().and_then(|extension| extension.to_str());
        let extension = extension.filter(|extension| !extension.contains(['{', '}'])).map(|text| format!(".{text}"));
        let (name, extension) = (name.to_string_lossy(), extension.unwrap_or_default());
        let stem = name.strip_suffix(extension.as_str()).unwrap_or(&name);
        format!("{stem}-{times}{extension}").into()
    }

    /// The directory above the first part of the path that has a placeholder.
    fn common_directory(&self) -> &Path {
        let plain = |path: &&Path| !path.to_str().is_some_and(|text| text.contains('{'));
        self.path.ancestors().skip(1).find(plain).unwrap_or(Path::new(""))
    }
}

/// An address as a file's name may have it on any system: `192.0.2.7-51234`, `2001-db8--7-51234`.
fn peer_name(peer: SocketAddr) -> String {
    let text = format!("{}-{}", peer.ip().to_canonical(), peer.port());
    text.replace(|c: char| !(c.is_ascii_alphanumeric() || c == '.'), "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_number_and_an_address() {
        let peer = "192.0.2.7:51234".parse().unwrap();
        let name = |pattern: &str, n| Pattern::parse(Path::new(pattern)).unwrap().name(n, peer);
        assert_eq!(name("clip-{number}.h264", 7), Path::new("clip-0007.h264"));
        assert_eq!(name("{peer}/{number}", 12_345), Path::new("192.0.2.7-51234/12345"));
        assert_eq!(name("plain", 1), Path::new("plain"));
        assert_eq!(peer_name("[2001:db8::7]:1".parse().unwrap()), "2001-db8--7-1");
        assert_eq!(peer_name("[::ffff:192.0.2.7]:1".parse().unwrap()), "192.0.2.7-1");
    }

    #[test]
    fn placeholders_that_are_none_are_named() {
        for bad in ["{x}", "{number", "{}", "a{number}b{N}"] {
            assert_eq!(Pattern::parse(Path::new(bad)).unwrap_err().code(), 2, "{bad}");
        }
        assert!(!Pattern::parse(Path::new("a}b")).unwrap().is_for_each());
    }

    #[test]
    fn the_directory_in_common_has_no_placeholder() {
        let common = |text: &str| Pattern::parse(Path::new(text)).unwrap().common_directory().to_owned();
        assert_eq!(common("a/b/{number}.x"), Path::new("a/b"));
        assert_eq!(common("a/{number}/b.x"), Path::new("a"));
        assert_eq!(common("{number}.x"), Path::new(""));
        assert_eq!(common("/{peer}"), Path::new("/"));
    }

    #[test]
    fn nothing_that_is_there_is_overwritten_by_number() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("0001.x"), "before").unwrap();
        let mut naming = Naming {
            pattern: Pattern::parse(&dir.path().join("{number}.x")).unwrap(),
            kind: Kind::File,
            framed: false,
            next: 1,
            taken: HashMap::new(),
        };
        let peer = "192.0.2.7:1".parse().unwrap();
        let sinks = [naming.open(peer).unwrap(), naming.open(peer).unwrap()];
        let names = sinks.map(|sink| sink.name().file_name().unwrap().to_owned());
        assert_eq!(names, ["0002.x", "0003.x"]);
        assert_eq!(fs::read(dir.path().join("0001.x")).unwrap(), b"before");
    }

    #[test]
    fn a_name_without_a_number_is_one_senders_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let pattern = Pattern::parse(&dir.path().join("{peer}/blocks")).unwrap();
        let mut naming = Naming { pattern, kind: Kind::Dir, framed: false, next: 1, taken: HashMap::new() };
        let [one, other] = ["192.0.2.7:1", "192.0.2.7:2"].map(|peer| peer.parse().unwrap());
        let held = naming.open(one).unwrap();
        assert!(matches!(naming.open(one), Err(NoOutput::Busy)));
        assert!(naming.open(other).is_ok());
        let name = |sink: &Sink| sink.name().strip_prefix(dir.path()).unwrap().to_owned();
        assert_eq!(name(&held), Path::new("192.0.2.7-1/blocks"));
        drop(held);
        let names = [(); 2].map(|()| name(&naming.open(one).unwrap()));
        assert_eq!(names, ["192.0.2.7-1/blocks-2", "192.0.2.7-1/blocks-3"].map(Path::new), "nothing is mixed up");
    }

    #[test]
    fn what_a_sender_sent_before_is_not_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let peer = "192.0.2.7:51234".parse().unwrap();
        for (pattern, second) in [("{peer}", "192.0.2.7-51234-2"), ("{peer}.h264", "192.0.2.7-51234-2.h264")] {
            let pattern = Pattern::parse(&dir.path().join(pattern)).unwrap();
            let mut naming = Naming { pattern, kind: Kind::File, framed: false, next: 1, taken: HashMap::new() };
            let [_, name] = [(); 2].map(|()| naming.open(peer).unwrap().name().file_name().unwrap().to_owned());
            assert_eq!(name, second);
        }
    }
}
