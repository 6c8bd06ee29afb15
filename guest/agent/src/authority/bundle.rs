//! The text of a bundle of certificates with the session's between two marks, so that it can be taken out again. A program
//! that builds the bundle anew, as `update-ca-certificates` does, copies the certificate without the marks.

use memchr::memmem::find;

const BEGIN: &[u8] = b"# Certificate authority of the session begins; it goes with the session\n";
const END: &[u8] = b"# Certificate authority of the session ends\n";
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Whether a file may be a bundle: an empty one is.
pub fn is_bundle(text: &[u8]) -> bool {
    text.is_empty() || find(text, CERTIFICATE).is_some()
}

pub fn has(text: &[u8], pem: &str) -> bool {
    find(text, pem.trim_end().as_bytes()).is_some()
}

/// Whether it has a certificate of a session between the marks.
pub fn is_marked(text: &[u8]) -> bool {
    find(text, BEGIN).is_some_and(|start| find(&text[start..], END).is_some())
}

/// A bundle of this certificate alone.
pub fn of(pem: &str) -> Vec<u8> {
    [BEGIN, pem.trim_end().as_bytes(), b"\n", END].concat()
}

/// Whether `of` made the bundle and nothing was added.
pub fn is_only_ours(text: &[u8], pems: &[String]) -> bool {
    text.starts_with(BEGIN) && without(text, pems).is_empty()
}

/// The bundle with the certificate. The mark begins with the end of a line, which the last line may lack.
pub fn with(text: &[u8], pem: &str) -> Vec<u8> {
    match has(text, pem) {
        true => text.to_vec(),
        false => [text, b"\n", &of(pem)].concat(),
    }
}

/// The bundle without what stands between marks, and without copies of these certificates.
pub fn without(text: &[u8], pems: &[String]) -> Vec<u8> {
    let mut text = text.to_vec();
    while let Some(start) = find(&text, BEGIN) {
        let inner = start + BEGIN.len();
        // Without its end it may be anything.
        let Some(length) = find(&text[inner..], END) else { break };
        cut(&mut text, start, inner + length + END.len());
    }
    for pem in pems.iter().map(|pem| pem.trim_end().as_bytes()).filter(|pem| !pem.is_empty()) {
        while let Some(start) = find(&text, pem) {
            let end = start + pem.len();
            let end = if text.get(end) == Some(&b'\n') { end + 1 } else { end };
            text.drain(start..end);
        }
    }
    text
}

/// Takes a marked block out, with the end of a line that `with` put before it. What was appended to a bundle without a last
/// end of a line keeps that one.
fn cut(text: &mut Vec<u8>, start: usize, end: usize) {
    let before = match text[..start].strip_suffix(b"\n") {
        Some(before) if before.ends_with(b"\n") || before.is_empty() || end == text.len() => before.len(),
        _ => start,
    };
    text.drain(before..end);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
    }

    #[test]
    fn what_is_put_in_comes_out_byte_for_byte() {
        let (ours, others) = (pem("ours"), pem("others"));
        let not_text = [b"\xff\xfe\n", others.as_bytes()].concat();
        let whole = others.as_bytes();
        for bundle in [whole, &whole[..whole.len() - 1], b"", b"\n", b"\n\n", &not_text] {
            let with_ours = with(bundle, &ours);
            assert!(has(&with_ours, &ours) && !has(bundle, &ours));
            assert_eq!(with(&with_ours, &ours), with_ours);
            assert_eq!(without(&with_ours, &[]), bundle);
        }
    }

    #[test]
    fn what_was_appended_later_stays_on_a_line_of_its_own() {
        let (ours, first, last) = (pem("ours"), pem("first"), pem("last"));
        let with_ours = |bundle: &str| [&with(bundle.as_bytes(), &ours), last.as_bytes()].concat();
        assert_eq!(without(&with_ours(&first), &[]), format!("{first}{last}").into_bytes());
        assert_eq!(without(&with_ours(first.trim_end()), &[]), format!("{first}{last}").into_bytes());
    }

    #[test]
    fn copies_without_marks_are_found_and_taken_out() {
        let (ours, others) = (pem("ours"), pem("others"));
        let rebuilt = format!("{others}{ours}{others}{}", ours.trim_end()).into_bytes();
        assert_eq!(with(&rebuilt, &ours), rebuilt);
        assert_eq!(without(&rebuilt, &[]), rebuilt);
        assert_eq!(without(&rebuilt, &[ours]), format!("{others}{others}").into_bytes());
    }

    #[test]
    fn a_mark_without_its_end_is_left_alone() {
        let text = [pem("a").as_bytes(), BEGIN, pem("b").as_bytes()].concat();
        assert_eq!(without(&text, &[]), text);
    }

    #[test]
    fn a_bundle_that_was_made_for_the_certificate_is_recognised() {
        let (ours, others) = (pem("ours"), pem("others"));
        assert!(is_only_ours(&of(&ours), &[]));
        assert!(!is_only_ours(&[of(&ours), others.into()].concat(), &[]));
        assert!(!is_only_ours(&with(b"", &ours), &[]));
        assert!(is_bundle(&of(&ours)) && is_bundle(b"") && !is_bundle(b"root:x:0:0\n"));
    }
}
