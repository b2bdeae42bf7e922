//! Programs that know nothing of Punctual, and two gateways between them, on loopback.

mod hostile;
mod lasting;
mod pair;
mod tcp;
mod udp;
