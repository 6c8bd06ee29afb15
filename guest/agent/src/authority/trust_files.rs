//! The files of a guest in which programs look for the certificates that they trust. Root in the guest may have replaced any
//! of them, so only regular files in the directories of certificates are written.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use super::bundle;
use super::certificate::Certificate;
use super::keystore::Keystore;
use crate::log;
use crate::regular_file::{self, overwrite, patch, read_bytes};

/// The certificate alone, where `update-ca-certificates` looks for those that are not of a package.
pub const FILE: &str = "usr/local/share/ca-certificates/vivarium-session.crt";
/// Bundles of Debian and Alpine, of Fedora, and of programs that follow OpenBSD.
const BUNDLES: [&str; 3] =
    ["etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/cert.pem"];
/// Name of a bundle that is made, the first of them.
const NEW_BUNDLE: &str = "ca-certificates.crt";
/// The directories that a bundle's link may lead to.
const HOMES: [&str; 3] = ["etc/ssl", "etc/pki", "etc/ca-certificates"];
const HASHED: &str = "etc/ssl/certs";
/// The link that `update-ca-certificates` makes to the certificate. Packages that are installed later fill their own stores from
/// such links, Java's among them.
const DEBIAN_LINK: &str = "vivarium-session.pem";
const KEYSTORE: &str = "etc/ssl/certs/java/cacerts";
/// A bundle on a file system in memory, for guests whose own cannot be written.
const IN_MEMORY: &str = "run/vivarium/ca-certificates.crt";
const IN_MEMORY_HOME: &str = "run/vivarium";
/// Certificates of one hashed name that are tried before the name is given up.
const SAME_HASH: usize = 100;

/// The places in the guest that have the certificate.
#[derive(Debug, Default, PartialEq)]
pub struct Installed {
    /// A bundle of the guest's certificates with the session's.
    pub bundle: Option<&'static str>,
    /// A file with the certificate alone, or with little else.
    pub file: Option<&'static str>,
}

/// Replaces the certificates that earlier calls may have installed. Installing the same one again changes nothing.
pub fn replace(root: &Path, earlier: &[Certificate], wanted: Option<&Certificate>) -> io::Result<Installed> {
    let root = root.canonicalize()?;
    if earlier.iter().any(|one| Some(one) != wanted) {
        remove(&root, earlier)?;
    }
    wanted.map_or_else(|| Ok(Installed::default()), |certificate| install(&root, certificate))
}

/// Failures are logged: the guest's root may have made the files unwritable. If neither a bundle nor a file can have the
/// certificate, one in memory has, which programs find by their variables. An error only if that cannot be written either.
fn install(root: &Path, certificate: &Certificate) -> io::Result<Installed> {
    let file = write_file(&root.join(FILE), &certificate.pem);
    let has_file = log::warn("write the session's certificate", file).is_some();
    let added: Vec<_> =
        BUNDLES.into_iter().filter_map(|path| add_to_bundle(root, path, certificate)).collect();
    let bundle = match added.is_empty() {
        true => make_bundle(root, certificate),
        false => added.into_iter().flatten().next(),
    };
    log::warn("link the session's certificate", link(root, certificate));
    log::warn("link the session's certificate by its name", link_by_name(root));
    log::warn("give Java the session's certificate", add_to_keystore(root, &certificate.der));
    if has_file || bundle.is_some() {
        return Ok(Installed { bundle, file: has_file.then_some(FILE) });
    }
    install_in_memory(root, certificate).map_err(|error| {
        io::Error::new(error.kind(), format!("no file of certificates can be written: {error}"))
    })
}

fn install_in_memory(root: &Path, certificate: &Certificate) -> io::Result<Installed> {
    let known = |path: &str| locate(root, path).ok().flatten().and_then(|place| read(&place).ok());
    let text = BUNDLES.into_iter().filter_map(known).find(|text| bundle::is_bundle(text)).unwrap_or_default();
    make_directory(&root.join(IN_MEMORY_HOME))?;
    let bundle = bundle::with(&text, &certificate.pem);
    overwrite(root.join(IN_MEMORY), &bundle, 0o644)?;
    Ok(Installed { bundle: Some(IN_MEMORY), file: Some(IN_MEMORY) })
}

/// The certificate that another life of this disk left in its files. Of one whose own file is lost only the marks are known,
/// which suffice to remove it.
pub fn find(root: &Path) -> Option<Certificate> {
    let root = root.canonicalize().ok()?;
    let is_marked =
        |path| matches!(read_if_ours(&root, path), Ok(Some((_, text))) if bundle::is_marked(&text));
    let unknown = || Certificate { pem: String::new(), der: Vec::new(), subject_hash: String::new() };
    Certificate::of_file(&regular_file::text(root.join(FILE)))
        .or_else(|| BUNDLES.into_iter().any(is_marked).then(unknown))
}

/// Attempts everything, and returns the first error.
fn remove(root: &Path, earlier: &[Certificate]) -> io::Result<()> {
    let pems: Vec<_> = earlier.iter().map(|one| one.pem.clone()).collect();
    let ders: Vec<_> = earlier.iter().map(|one| one.der.clone()).collect();
    let mut removals: Vec<_> =
        BUNDLES.into_iter().map(|path| remove_from_bundle(root, path, &pems)).collect();
    removals.push(remove_from_keystore(root, &ders));
    removals.push(remove_links(root));
    removals.push(remove_file(&root.join(FILE)));
    removals.push(remove_file(&root.join(IN_MEMORY)));
    removals.into_iter().collect()
}

fn write_file(path: &Path, pem: &str) -> io::Result<()> {
    make_directory(path.parent().unwrap_or(path))?;
    match regular_file::text(path) == pem && !path.is_symlink() {
        true => Ok(()),
        false => overwrite(path, pem, 0o644),
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// None without such a bundle; Some(None) if it cannot have the certificate.
fn add_to_bundle(root: &Path, path: &'static str, certificate: &Certificate) -> Option<Option<&'static str>> {
    let added = (|| {
        let Some(place) = locate(root, path)? else { return Ok(None) };
        let text = read(&place)?;
        if !bundle::is_bundle(&text) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has no certificates"));
        }
        write(&place, &text, &bundle::with(&text, &certificate.pem))?;
        Ok(Some(path))
    })();
    match log::warn(&format!("add the session's certificate to /{path}"), added) {
        Some(None) => None,
        other => Some(other.flatten()),
    }
}

fn make_bundle(root: &Path, certificate: &Certificate) -> Option<&'static str> {
    let made = hashed_directory(root)
        .and_then(|directory| overwrite(directory.join(NEW_BUNDLE), &bundle::of(&certificate.pem), 0o644));
    log::warn("make a bundle of certificates", made).map(|()| BUNDLES[0])
}

fn remove_from_bundle(root: &Path, path: &str, pems: &[String]) -> io::Result<()> {
    let Some((place, text)) = read_if_ours(root, path)? else { return Ok(()) };
    match bundle::is_only_ours(&text, pems) {
        true => remove_file(&place),
        false => write(&place, &text, &bundle::without(&text, pems)),
    }
}

/// Gives the certificate the name by which programs find it in the directory, with the next free number.
fn link(root: &Path, Certificate { subject_hash, pem, .. }: &Certificate) -> io::Result<()> {
    let target = Path::new("/").join(FILE);
    let directory = hashed_directory(root)?;
    for number in 0..SAME_HASH {
        let path = directory.join(format!("{subject_hash}.{number}"));
        match symlink(&target, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_ours = fs::read_link(&path).is_ok_and(|to| to == target);
                if is_ours || regular_file::text(&path).trim_end() == pem.trim_end() {
                    return Ok(());
                }
            }
            linked => return linked,
        }
    }
    Err(io::Error::other("too many certificates have its hash"))
}

fn link_by_name(root: &Path) -> io::Result<()> {
    let path = hashed_directory(root)?.join(DEBIAN_LINK);
    match symlink(Path::new("/").join(FILE), path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

fn hashed_directory(root: &Path) -> io::Result<PathBuf> {
    make_directory(&root.join(HASHED))?;
    Ok(locate(root, HASHED)?.ok_or(io::ErrorKind::NotFound)?)
}

fn remove_links(root: &Path) -> io::Result<()> {
    let Ok(Some(directory)) = locate(root, HASHED) else { return Ok(()) };
    let files = match fs::read_dir(directory) {
        Err(error) if is_nothing(&error) => return Ok(()),
        files => files?.flatten(),
    };
    let target = Path::new("/").join(FILE);
    let is_ours = |to: PathBuf| to == target || to == Path::new(DEBIAN_LINK);
    let mut ours = files.map(|file| file.path()).filter(|path| fs::read_link(path).is_ok_and(is_ours));
    ours.try_for_each(|path| remove_file(&path))
}

fn add_to_keystore(root: &Path, der: &[u8]) -> io::Result<()> {
    let Some(place) = locate(root, KEYSTORE)? else { return Ok(()) };
    let bytes = read(&place)?;
    let keystore = Keystore::parse(&bytes).map_err(io::Error::other)?;
    match keystore.has(der) {
        true => Ok(()),
        false => write(&place, &bytes, &keystore.with(der)),
    }
}

/// A keystore that cannot be read has never got a certificate.
fn remove_from_keystore(root: &Path, ders: &[Vec<u8>]) -> io::Result<()> {
    let Some((place, bytes)) = read_if_ours(root, KEYSTORE)? else { return Ok(()) };
    Keystore::parse(&bytes).map_or(Ok(()), |keystore| write(&place, &bytes, &keystore.without(ders)))
}

/// The file behind a path's links; None if it is missing. An error if it is elsewhere than certificates are.
fn locate(root: &Path, path: &str) -> io::Result<Option<PathBuf>> {
    let place = match root.join(path).canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        place => place?,
    };
    match HOMES.iter().any(|home| place.starts_with(root.join(home))) {
        true => Ok(Some(place)),
        false => Err(io::Error::other(format!("it is a link to {}", place.display()))),
    }
}

/// A file with its content; None without a file that `install` could have written.
fn read_if_ours(root: &Path, path: &str) -> io::Result<Option<(PathBuf, Vec<u8>)>> {
    let Ok(Some(place)) = locate(root, path) else { return Ok(None) };
    match read(&place) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        text => Ok(Some((place, text?))),
    }
}

fn read(place: &Path) -> io::Result<Vec<u8>> {
    read_bytes(&mut regular_file::open(place, File::options().read(true))?)
}

fn write(place: &Path, before: &[u8], after: &[u8]) -> io::Result<()> {
    match before == after {
        true => Ok(()),
        false => patch(&regular_file::open(place, File::options().write(true))?, before, after),
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if is_nothing(&error) => Ok(()),
        removed => removed,
    }
}

/// Whether the error says that the place has no file of ours: nothing at all, or an object of another kind.
fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
}
