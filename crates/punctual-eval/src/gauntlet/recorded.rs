//! Stretches of recorded cellular links: Mahimahi's, of which the data folder has three drives.

/// Twenty seconds of a drive, in both directions. Rates are what the recordings carry in that time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recorded {
    /// As its file is called, without the ending.
    pub drive: &'static str,
    /// Whose network it was.
    pub carrier: &'static str,
    /// Seconds from the recording's beginning.
    pub from: f64,
    /// Whether blocks go up, from the phone.
    pub up: bool,
    /// Mbit/s towards the phone, and from it.
    rates: (f64, f64),
}

/// Stretches with at least 0.3 Mbit/s each way.
#[rustfmt::skip] // a table
pub(super) const STRETCHES: &[Recorded] = &[
    stretch("TMobile-LTE-short", "T-Mobile",   0.0, 19.76,  4.37),
    stretch("TMobile-LTE-short", "T-Mobile",  20.0, 12.64,  5.30),
    stretch("TMobile-LTE-short", "T-Mobile",  40.0,  9.65,  9.44),
    stretch("TMobile-LTE-short", "T-Mobile",  60.0, 14.27, 11.93),
    stretch("TMobile-LTE-short", "T-Mobile",  80.0, 20.97, 15.57),
    stretch("TMobile-LTE-short", "T-Mobile", 100.0, 18.96, 20.85),
    stretch("Verizon-LTE-short", "Verizon",    0.0,  4.98,  6.39),
    stretch("Verizon-LTE-short", "Verizon",   20.0,  5.70,  8.35),
    stretch("Verizon-LTE-short", "Verizon",   40.0,  3.63,  2.70),
    stretch("Verizon-LTE-short", "Verizon",   60.0,  2.50,  3.97),
    stretch("Verizon-LTE-short", "Verizon",   80.0,  6.11,  5.15),
    stretch("Verizon-LTE-short", "Verizon",  100.0,  8.80,  9.05),
    stretch("ATT-LTE-driving",   "AT&T",      80.0, 11.42,  1.12),
    stretch("ATT-LTE-driving",   "AT&T",     200.0,  7.93,  1.10),
    stretch("ATT-LTE-driving",   "AT&T",     260.0,  1.36,  0.41),
    stretch("ATT-LTE-driving",   "AT&T",     320.0,  3.08,  1.06),
    stretch("ATT-LTE-driving",   "AT&T",     440.0,  5.45,  0.95),
    stretch("ATT-LTE-driving",   "AT&T",     620.0,  6.32,  1.04),
];

const fn stretch(drive: &'static str, carrier: &'static str, from: f64, down: f64, up: f64) -> Recorded {
    Recorded { drive, carrier, from, up: false, rates: (down, up) }
}

impl Recorded {
    pub(super) fn either_way(self, up: bool) -> Self {
        Self { up, ..self }
    }

    /// Bits per second of the way there.
    pub fn rate(self) -> f64 {
        (if self.up { self.rates.1 } else { self.rates.0 }) * 1e6
    }

    /// Bits per second of the way back.
    pub fn back_rate(self) -> f64 {
        (if self.up { self.rates.0 } else { self.rates.1 }) * 1e6
    }

    /// The files of the way there and the way back.
    pub fn files(self) -> [String; 2] {
        let [down, up] = ["down", "up"].map(|way| format!("mahimahi/{}.{way}", self.drive));
        if self.up { [up, down] } else { [down, up] }
    }
}
