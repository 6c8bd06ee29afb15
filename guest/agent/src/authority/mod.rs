//! The certificate authority that signs for a session's Connections. The guest trusts it from the first instruction of its
//! user's processes: it is in the guest's files by then, and new processes have variables that name these. What was installed
//! is kept in memory, so a machine that is loaded from a snapshot knows what its files contain.

mod bundle;
mod certificate;
mod keystore;
#[cfg(test)]
mod testing;
mod trust_files;
#[cfg(test)]
mod trust_files_test;

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use certificate::{Certificate, Encoded};
use trust_files::Installed;

use crate::chores::Chores;

const WITHIN: Duration = Duration::from_secs(10);
/// Variables by which programs find a bundle in place of the one that they were built with.
const NAME_BUNDLE: [&str; 6] =
    ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE"];
/// Variables by which programs find a certificate besides those that they have.
const NAME_FILE: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];

pub struct Authority {
    root: PathBuf,
    /// Every certificate that the files may contain: several if calls have failed.
    certificates: RefCell<Vec<Certificate>>,
    installed: RefCell<Installed>,
}

impl Authority {
    #[cfg(test)]
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Authority { root: root.into(), certificates: RefCell::default(), installed: RefCell::default() }
    }

    /// A disk that was saved without its memory may have the authority of the session that it was saved from. This boot
    /// knows of it, so that the next call removes it.
    pub fn found_below(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let certificates = Vec::from_iter(trust_files::find(&root));
        Authority { root, certificates: certificates.into(), installed: RefCell::default() }
    }

    /// Makes the guest trust this authority, or none, in place of an earlier one.
    pub async fn set(&self, chores: &Chores, wanted: Option<Certificate>) -> io::Result<()> {
        let earlier = self.certificates.borrow().clone();
        if wanted.is_none() && earlier.is_empty() {
            return Ok(());
        }
        // Before the work: a call that fails or comes too late may have changed some files.
        *self.installed.borrow_mut() = Installed::default();
        self.certificates.borrow_mut().extend(wanted.clone());
        let (root, certificate) = (self.root.clone(), wanted.clone());
        let work = move || trust_files::replace(&root, &earlier, certificate.as_ref());
        let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "the files cannot be written"));
        let installed = chores.within(WITHIN, work).await.unwrap_or_else(late)?;
        *self.certificates.borrow_mut() = Vec::from_iter(wanted);
        *self.installed.borrow_mut() = installed;
        Ok(())
    }

    /// Variables of new processes, unless the session, the image or the operator sets them otherwise.
    pub fn variables(&self) -> Vec<(String, String)> {
        let installed = self.installed.borrow();
        let bundle = installed.bundle.into_iter().flat_map(|path| NAME_BUNDLE.map(|name| (name, path)));
        let file = installed.file.into_iter().flat_map(|path| NAME_FILE.map(|name| (name, path)));
        bundle.chain(file).map(|(name, path)| (name.into(), format!("/{path}"))).collect()
    }
}
