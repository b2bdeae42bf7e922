//! How fast each path is driven: our own controller and noq's, by name, behind our steering decorator.

use std::sync::Arc;

use noq_proto::congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig};

pub(crate) mod answers;
#[cfg(test)]
mod bottleneck;
mod contest;
mod delivery;
mod dispersion;
mod losses;
mod standing;
mod steady;
pub(crate) mod steering;
mod trains;
mod waits;

/// Makes the controllers of a session, given the first congestion window in bytes.
pub type CongestionFactory = Arc<dyn Fn(u64) -> Arc<dyn ControllerFactory + Send + Sync> + Send + Sync>;

/// The controllers that can be chosen by name, the default first.
pub const NAMES: &[&str] = &["steady", "cubic", "new-reno", "bbr3"];

/// The controller of that name, if there is one.
pub fn by_name(name: &str) -> Option<CongestionFactory> {
    Some(match name {
        "steady" => Arc::new(|initial_window| Arc::new(steady::SteadyConfig { initial_window })),
        "cubic" => Arc::new(|window| {
            let mut config = CubicConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }),
        "new-reno" => Arc::new(|window| {
            let mut config = NewRenoConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }),
        "bbr3" => Arc::new(|window| {
            let mut config = Bbr3Config::default();
            config.initial_window(window);
            Arc::new(config)
        }),
        _ => return None,
    })
}

/// The default: our own.
pub fn default_factory() -> CongestionFactory {
    by_name(NAMES[0]).expect("the default is in the registry")
}
