//! A congestion controller that does not control: for links of which one knows what they hold.

use std::{any::Any, sync::Arc, time::Instant};

use noq_proto::congestion::{Controller, ControllerFactory};

/// A window of so many bytes, whatever happens.
#[derive(Debug, Clone)]
pub struct FixedWindow(pub u64);

impl ControllerFactory for FixedWindow {
    fn build(self: Arc<Self>, _now: Instant, _mtu: u16) -> Box<dyn Controller> {
        Box::new(Self::clone(&self))
    }
}

impl Controller for FixedWindow {
    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        _persistent: bool,
        _ecn: bool,
        _lost: u64,
        _pn: u64,
    ) {
    }

    fn on_mtu_update(&mut self, _mtu: u16) {}

    fn window(&self) -> u64 {
        self.0
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
