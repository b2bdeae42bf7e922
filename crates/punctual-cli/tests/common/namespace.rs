//! Network namespaces, for what only root can try.

use std::{
    fs::{self, File},
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A namespace that goes with the test.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    /// Two of them; `None`, and said so, for who is not root.
    pub(crate) fn pair(what: &str) -> Option<[Self; 2]> {
        if !fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
            eprintln!("NOT TRIED: {what} between namespaces needs root");
            return None;
        }
        Some(["left", "right"].map(Self::make))
    }

    fn make(name: &str) -> Self {
        // Tests of one process run beside each other.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("punctual-{}-{}-{name}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let made = Command::new("ip").args(["netns", "add", &name]).output().expect("there is `ip`");
        assert!(made.status.success(), "as root there are namespaces: {made:?}");
        Self(name)
    }

    /// Does something in it, on a thread of its own.
    pub(crate) fn enter<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
        let file = File::open(format!("/run/netns/{}", self.0)).expect("it is there");
        thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("we are root");
            work()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}
