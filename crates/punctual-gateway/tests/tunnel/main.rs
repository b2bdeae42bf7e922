//! Programs that know nothing of Punctual, and two gateways between them, on loopback.

mod bad_links;
mod hostile;
mod lasting;
mod names;
mod pair;
mod tcp;
mod udp;
