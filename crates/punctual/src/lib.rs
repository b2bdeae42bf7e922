//! Delivers blocks before their deadlines, over several network paths at once.
