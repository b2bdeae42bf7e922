//! How fast each path is driven: our own controller, by what the receiver reports, or QUIC's, by its acknowledgements.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig};

mod contest;
mod dropping;
mod holding;
mod losses;
pub(crate) mod pacing;
mod report;
mod round;
mod shallow;
mod standing;
mod steady;
pub(crate) mod steering;

pub use self::report::Report;
use crate::{
    network::BASE_PACKET,
    rate::Rate,
    registry::{self, Entry, LookupError},
};

/// Makes QUIC's controllers of a session, given the first congestion window in bytes.
pub type CongestionFactory = Arc<dyn Fn(u64) -> Arc<dyn ControllerFactory + Send + Sync> + Send + Sync>;

/// Makes the controller of a path that opens, given its number among those of the session in the order of opening, and the first
/// congestion window in bytes.
pub type DriverFactory = Arc<dyn Fn(usize, u64) -> Box<dyn Driver> + Send + Sync>;

/// What drives a session's paths.
#[derive(Clone)]
#[non_exhaustive]
pub enum Congestion {
    /// Controllers that go by what the receiver reports of arrivals: ours. Towards peers that do not speak Punctual, and report
    /// nothing, QUIC's CUBIC takes their place.
    Reports(DriverFactory),
    /// Controllers of QUIC's, that go by its acknowledgements.
    Acks(CongestionFactory),
}

impl fmt::Debug for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither kind of controller has a name of its own; that of its type says which it is.
        let (kind, shown) = match self {
            Self::Reports(make) => ("Reports", format!("{:?}", make(0, BASE_PACKET))),
            Self::Acks(make) => ("Acks", format!("{:?}", make(BASE_PACKET).build(Instant::now(), BASE_PACKET as u16))),
        };
        let name = shown.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        write!(f, "{kind}({name})")
    }
}

impl Congestion {
    /// The controllers QUIC is given.
    pub(crate) fn quic(&self) -> CongestionFactory {
        match self {
            Self::Reports(_) => cubic_factory(),
            Self::Acks(factory) => factory.clone(),
        }
    }

    /// The controller of the session's `index`-th path, if it is not QUIC's.
    pub(crate) fn driver(&self, index: usize, initial_window: u64) -> Option<Box<dyn Driver>> {
        match self {
            Self::Reports(factory) => Some(factory(index, initial_window)),
            Self::Acks(_) => None,
        }
    }
}

/// What a controller is shown of its path.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PathState {
    /// The round trip when nothing of ours waits.
    pub base: Duration,
    /// The same on average: answers come back more or less soon.
    pub usual: Duration,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// What packets vary by when nothing of ours is in their way.
    pub jitter: Duration,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Largest UDP payload.
    pub mtu: u16,
    /// Bytes of a full packet of ours, UDP payload: fewer than fit on a path so slow that what is urgent would wait long for one.
    pub packet: u16,
    /// A policer on the path drops what is more than this. That packets leave no faster is not for the controller to see to; it had better not count on more.
    pub policed: Option<Rate>,
    /// How many bytes the path's queue has room for at once, if that is less than may leave at once else. What leaves at once is kept to it; the rate is
    /// the controller's to see to.
    pub room: Option<u64>,
    /// Packets that found no room there so far.
    pub no_room: u64,
    /// The share of packets that the path loses by chance, as far as is known.
    pub chance: f64,
}

/// A packet that was lost.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Loss {
    /// Bytes of it, UDP payload.
    pub bytes: u64,
    /// The queue that its neighbours found.
    pub queue: Duration,
    /// As far as one can tell there was no room for it in the queue, and it was not lost by chance.
    pub overflow: bool,
}

impl Loss {
    /// A packet of `bytes` that was lost by chance, whose neighbours found no queue. For tests of controllers.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, queue: Duration::ZERO, overflow: false }
    }
}

/// Drives a path by what its receiver reports.
pub trait Driver: Send + fmt::Debug {
    /// A packet left; `in_flight` includes it.
    fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        let _ = (now, bytes, in_flight);
    }

    /// There was nothing more to be sent.
    fn on_dry(&mut self) {}

    /// Something expired that had not all left, and would have been in time here had the path been faster.
    fn on_starved(&mut self) {}

    /// A packet was lost.
    fn on_lost(&mut self, loss: &Loss) {
        let _ = loss;
    }

    /// The receiver has reported arrivals. Returns by how much the path has become longer, if that is what they show.
    fn on_report(&mut self, report: &Report, path: &PathState) -> Option<Duration> {
        let _ = (report, path);
        None
    }

    /// What the path carries now.
    fn rate(&self, now: Instant, path: &PathState) -> Rate;

    /// What it will carry in the near future, for schedulers to go by.
    fn forecast(&self, now: Instant, path: &PathState) -> Rate {
        self.rate(now, path)
    }

    /// Whether the path may carry much more than has been seen so far: nothing has shown yet that it is full.
    fn is_growing(&self) -> bool {
        false
    }

    /// The queue that others keep up: what there is when we make room.
    fn queue_of_others(&self) -> Duration {
        Duration::ZERO
    }

    /// How fast packets may leave.
    fn pace(&self, now: Instant, path: &PathState) -> Rate;

    /// How many bytes may leave at once after a pause, if not as many as usual.
    fn burst(&self, path: &PathState) -> Option<u64> {
        let _ = path;
        None
    }

    /// Before when nothing may leave, pacing apart.
    fn ready_at(&self, now: Instant) -> Option<Instant> {
        let _ = now;
        None
    }

    /// How many bytes may be in flight.
    fn window(&self, path: &PathState) -> u64;

    /// How long what was sent will keep the path busy, if the controller knows better than the model.
    fn backlog(&self, now: Instant) -> Option<Duration> {
        let _ = now;
        None
    }
}

/// What these are called in errors.
const KIND: &str = "congestion controller";

/// The controllers that can be chosen by name, the default first.
pub const REGISTRY: &[Entry<Congestion>] = &[
    Entry {
        name: "steady",
        about: "by what the receiver reports: short queues, a fair share beside others, random loss borne",
        parameters: &[],
        make: |_| steady(),
    },
    Entry {
        name: "cubic",
        about: "CUBIC, by acknowledgements: fills the queue until something is lost",
        parameters: &[],
        make: |_| cubic(),
    },
    Entry { name: "new-reno", about: "NewReno, by acknowledgements", parameters: &[], make: |_| new_reno() },
    Entry { name: "bbr3", about: "BBRv3, by acknowledgements", parameters: &[], make: |_| bbr3() },
];

/// The controllers `spec`, a name of [`REGISTRY`], stands for.
///
/// ```
/// # use punctual_proto::congestion;
/// assert_eq!(format!("{:?}", congestion::by_name("steady")?), "Reports(Steady)");
/// assert_eq!(format!("{:?}", congestion::cubic()), "Acks(Cubic)");
/// # Ok::<(), punctual_proto::LookupError>(())
/// ```
pub fn by_name(spec: &str) -> Result<Congestion, LookupError> {
    registry::find(REGISTRY, KIND, spec)
}

/// The names [`by_name`] knows, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|entry| entry.name)
}

/// QUIC's controllers of that name.
///
/// # Errors
/// [`LookupError::UnknownName`] if there are none, or the name is that of ours, which QUIC cannot use by itself.
pub fn quic(name: &str) -> Result<CongestionFactory, LookupError> {
    let acks = |entry: &&Entry<Congestion>| matches!(entry.with_defaults(), Congestion::Acks(_));
    match by_name(name) {
        Ok(Congestion::Acks(factory)) => Ok(factory),
        _ => Err(LookupError::UnknownName {
            kind: "congestion controller of QUIC's",
            name: name.to_owned(),
            known: REGISTRY.iter().filter(acks).map(|entry| entry.name).collect(),
        }),
    }
}

/// `steady`: ours, by what the receiver reports. The default.
pub fn steady() -> Congestion {
    Congestion::Reports(Arc::new(|_, window| Box::new(steady::Steady::new(window))))
}

/// `cubic`: QUIC's CUBIC.
pub fn cubic() -> Congestion {
    Congestion::Acks(cubic_factory())
}

fn cubic_factory() -> CongestionFactory {
    Arc::new(|window| {
        let mut config = CubicConfig::default();
        config.initial_window(window);
        Arc::new(config)
    })
}

/// `new-reno`: QUIC's NewReno.
pub fn new_reno() -> Congestion {
    Congestion::Acks(Arc::new(|window| {
        let mut config = NewRenoConfig::default();
        config.initial_window(window);
        Arc::new(config)
    }))
}

/// `bbr3`: QUIC's BBRv3.
pub fn bbr3() -> Congestion {
    Congestion::Acks(Arc::new(|window| {
        let mut config = Bbr3Config::default();
        config.initial_window(window);
        Arc::new(config)
    }))
}

/// The default: our own.
pub fn default_congestion() -> Congestion {
    steady()
}
