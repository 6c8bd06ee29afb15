//! A search in files, without a request or a user in it. `walk` visits every name below a `directory`. `glob` and
//! `wildcard` match names. `pattern` compiles RE2 syntax (`re2`, `re2_class`), and `lines` matches the lines of one file.
//! `pace` ends long work early.

mod bad_pattern;
pub mod directory;
pub mod glob;
pub mod lines;
pub mod pace;
pub mod pattern;
mod re2;
mod re2_class;
pub mod walk;
pub mod wildcard;

pub use bad_pattern::BadPattern;
