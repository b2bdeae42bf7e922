//! Programs that know nothing of Punctual, and two gateways between them, on loopback.

mod bad_links;
mod hostile;
mod lasting;
mod names;
mod pair;
mod reused;
mod tcp;
mod udp;
