//! Parameters of a request's query. Unknown parameters are ignored.

use std::collections::HashMap;

use super::faults::{Code, Fault};

pub struct Query(HashMap<String, String>);

impl Query {
    pub fn parse(query: &str) -> Query {
        Query(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    pub fn text(&self, key: &str) -> Result<String, Fault> {
        self.optional(key).ok_or_else(|| Fault::new(Code::INVALID, format!("{key}: expected, not given")))
    }

    pub fn optional(&self, key: &str) -> Option<String> {
        self.0.get(key).cloned()
    }

    pub fn flag(&self, key: &str) -> Result<bool, Fault> {
        match self.0.get(key).map(String::as_str) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                Err(Fault::new(Code::INVALID, format!("{key}: expected true or false, got {other:?}")))
            }
        }
    }

    pub fn number(&self, key: &str) -> Result<Option<u64>, Fault> {
        let Some(text) = self.0.get(key) else {
            return Ok(None);
        };
        let number = text.parse().map_err(|_| {
            Fault::new(Code::INVALID, format!("{key}: expected a whole number, got {text:?}"))
        })?;
        Ok(Some(number))
    }

    /// A number of at least 1; a larger one than `most` counts as `most`.
    pub fn count(&self, key: &str, default: usize, most: usize) -> Result<usize, Fault> {
        match self.number(key)? {
            None => Ok(default),
            Some(0) => Err(Fault::new(Code::INVALID, format!("{key}: expected at least 1, got 0"))),
            Some(number) => Ok(usize::try_from(number).unwrap_or(most).min(most)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_flags_are_what_they_say_or_refused() {
        let query = Query::parse("a=1&b=true&c=x&d=0&e=99999&f=99999999999999999999&g=a%2Fb");
        assert_eq!(query.number("a").unwrap(), Some(1));
        assert_eq!(query.number("missing").unwrap(), None);
        assert!(query.flag("b").unwrap() && !query.flag("missing").unwrap());
        assert!(query.flag("c").is_err() && query.number("c").is_err() && query.number("f").is_err());
        assert!(query.count("d", 5, 10).is_err());
        assert_eq!(query.count("e", 5, 10).unwrap(), 10);
        assert_eq!(query.count("missing", 5, 10).unwrap(), 5);
        assert_eq!(query.text("g").unwrap(), "a/b");
        assert!(query.text("missing").is_err());
    }
}
