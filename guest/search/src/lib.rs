//! Searches files. `walk` visits every name below a `directory`, `glob` and `wildcard` match names, `pattern` compiles RE2
//! syntax (`re2`, `re2_class`), `lines` matches the lines of one file, and `pace` ends long work early.

pub mod directory;
pub mod glob;
pub mod lines;
pub mod pace;
pub mod pattern;
mod re2;
mod re2_class;
pub mod walk;
pub mod wildcard;

/// Why a glob or a pattern is refused.
#[derive(Debug)]
pub struct BadPattern {
    pub words: String,
}

impl BadPattern {
    /// Puts the parameter's name in front of the words.
    pub fn new(words: impl std::fmt::Display) -> BadPattern {
        BadPattern { words: format!("pattern: {words}") }
    }
}
