/// Why a glob or a pattern is refused.
#[derive(Debug)]
pub struct BadPattern {
    pub words: String,
}

impl BadPattern {
    /// The words begin with the parameter's name.
    pub fn new(words: impl std::fmt::Display) -> BadPattern {
        BadPattern { words: format!("pattern: {words}") }
    }
}
