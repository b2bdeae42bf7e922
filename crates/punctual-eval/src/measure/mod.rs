//! To be written.
/// stub
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
pub struct MeasureConfig {}
