//! VPNs in one process: devices are queues, sessions go over two paths on loopback.

mod carrying;
mod clients;
mod hosts;
mod trust;
