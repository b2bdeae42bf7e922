//! The clairvoyant bound: how many blocks no sender can beat, not even one that knows the future.
