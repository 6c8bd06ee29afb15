//! Gives a bare image what every machine has: a shell, and the certificates that programs trust. Both come with the builder.
//! Nothing that the image has is replaced or changed, however unusable it is.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat, symlinkat};
use rustix::io::Errno;
use serde::Serialize;

use super::brought::Brought;
use super::fault::Fault;
use super::root::{Directory, Root};
use crate::users::GIVEN_SHELL;

/// The files in the builder's own file system, from which images get theirs.
#[derive(Clone, Copy)]
pub struct Gifts<'a> {
    /// A shell that needs no library.
    pub shell: &'a Path,
    /// A bundle of certificates.
    pub certificates: &'a Path,
}

/// The parts that an image got, for the log of its build.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Given {
    Shell,
    Certificates,
}

const SHELL: &[&[u8]] = &[b"bin", b"sh"];
/// The places where programs look for the certificates of their system.
const BUNDLES: [&[&[u8]]; 6] = [
    &[b"etc", b"ssl", b"certs", BUNDLE],
    &[b"etc", b"ssl", ALIAS],
    &[b"etc", b"ssl", b"ca-bundle.pem"],
    &[b"etc", b"pki", b"tls", b"certs", b"ca-bundle.crt"],
    &[b"etc", b"pki", b"tls", b"cacert.pem"],
    &[b"etc", b"pki", b"ca-trust", b"extracted", b"pem", b"tls-ca-bundle.pem"],
];
const BUNDLE: &[u8] = b"ca-certificates.crt";
/// Where programs look that follow OpenBSD, those of Alpine among them.
const ALIAS: &[u8] = b"cert.pem";
const FOR_ALL: u32 = 0o644;
const PROGRAM: u32 = 0o755;

pub fn complete(root: &Root, gifts: Gifts<'_>) -> Result<Vec<Given>, Fault> {
    let shell = give_shell(root, gifts.shell)?.then_some(Given::Shell);
    let certificates = give_certificates(root, gifts.certificates)?.then_some(Given::Certificates);
    Ok([shell, certificates].into_iter().flatten().collect())
}

/// The shell has a place of its own, where the agent looks too, and /bin/sh is a link to it if nothing has that name.
fn give_shell(root: &Root, source: &Path) -> Result<bool, Fault> {
    if root.find_file(SHELL)?.is_some_and(|found| found.st_mode & 0o111 != 0) {
        return Ok(false);
    }
    let names: Vec<&[u8]> = GIVEN_SHELL.as_bytes().split(|byte| *byte == b'/').skip(1).collect();
    if !put(root, &names, source, PROGRAM)? {
        return Ok(false);
    }
    link(root, SHELL, GIVEN_SHELL)?;
    Ok(true)
}

fn give_certificates(root: &Root, source: &Path) -> Result<bool, Fault> {
    for names in BUNDLES {
        if root.find_file(names)?.is_some_and(|found| found.st_size > 0) {
            return Ok(false);
        }
    }
    if !put(root, BUNDLES[0], source, FOR_ALL)? {
        return Ok(false);
    }
    link(root, BUNDLES[1], "certs/ca-certificates.crt")?;
    Ok(true)
}

/// Copies a file to where nothing is. False if something is.
fn put(root: &Root, names: &[&[u8]], source: &Path, mode: u32) -> Result<bool, Fault> {
    let mut from = File::open(source).map_err(|error| Fault::internal("read the builder's files", error))?;
    let Some((directory, name)) = place(root, names)? else { return Ok(false) };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = match openat(&directory.fd, name, flags, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => return Ok(false),
        opened => File::from(opened?),
    };
    io::copy(&mut from, &mut file)?;
    Ok(true)
}

fn link(root: &Root, names: &[&[u8]], target: &str) -> Result<(), Fault> {
    let Some((directory, name)) = place(root, names)? else { return Ok(()) };
    match symlinkat(target, &directory.fd, name) {
        Err(Errno::EXIST) => Ok(()),
        linked => Ok(linked?),
    }
}

/// The directory of a path, made where nothing has its name, and the last name. None where a file, or a link that leads
/// nowhere, has the name of a directory.
fn place<'a>(root: &Root, names: &[&'a [u8]]) -> Result<Option<(Directory, &'a [u8])>, Fault> {
    let Some((name, parents)) = names.split_last() else { return Ok(None) };
    let mut at = root.directory()?;
    for end in 1..=parents.len() {
        at = match root.find(&parents[..end])? {
            Some(found) => found,
            None if at.look(parents[end - 1])?.is_none() => {
                root.make(&parents[..end], &mut Brought::new(1))?
            }
            None => return Ok(None),
        };
    }
    Ok(Some((at, name)))
}

#[cfg(test)]
#[path = "bare_test.rs"]
mod tests;
