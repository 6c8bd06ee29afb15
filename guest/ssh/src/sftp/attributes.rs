//! File attributes: read from requests, and written to answers.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use crate::broken::Broken;
use crate::wire::{Message, Reader};

const SIZE: u32 = 1;
const IDS: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;

/// The attributes that a request sets.
#[derive(Debug, Default, PartialEq)]
pub struct Wanted {
    pub size: Option<u64>,
    /// Owner and group.
    pub ids: Option<(u32, u32)>,
    pub permissions: Option<u32>,
    /// Times of the last access and the last modification, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

impl Wanted {
    pub fn read(reader: &mut Reader) -> Result<Wanted, Broken> {
        let flags = reader.u32()?;
        let has = |flag| flags & flag != 0;
        Ok(Wanted {
            size: has(SIZE).then(|| reader.u64()).transpose()?,
            ids: has(IDS).then(|| pair(reader)).transpose()?,
            permissions: has(PERMISSIONS).then(|| reader.u32()).transpose()?.map(|mode| mode & 0o7777),
            times: has(TIMES).then(|| pair(reader)).transpose()?,
        })
    }
}

fn pair(reader: &mut Reader) -> Result<(u32, u32), Broken> {
    Ok((reader.u32()?, reader.u32()?))
}

pub fn write(message: Message, meta: &Metadata) -> Message {
    let seconds = |time: i64| time.clamp(0, u32::MAX.into()) as u32;
    message
        .u32(SIZE | IDS | PERMISSIONS | TIMES)
        .u64(meta.size())
        .u32(meta.uid())
        .u32(meta.gid())
        .u32(meta.mode())
        .u32(seconds(meta.atime()))
        .u32(seconds(meta.mtime()))
}

/// A file's line as in `ls -l`, which clients show to people.
pub fn line(name: &str, meta: &Metadata) -> String {
    let (day, clock) = (meta.mtime().div_euclid(86_400), meta.mtime().rem_euclid(86_400) / 60);
    let (year, month, day) = date(day);
    format!(
        "{} {:>4} {:<8} {:<8} {:>10} {year}-{month:02}-{day:02} {:02}:{:02} {name}",
        mode(meta.mode()),
        meta.nlink(),
        meta.uid(),
        meta.gid(),
        meta.size(),
        clock / 60,
        clock % 60,
    )
}

fn mode(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        0o020_000 => 'c',
        0o060_000 => 'b',
        0o010_000 => 'p',
        0o140_000 => 's',
        _ => '-',
    };
    let bits = "rwxrwxrwx".chars().enumerate();
    let rights = bits.map(|(at, right)| if mode & (0o400 >> at) != 0 { right } else { '-' });
    [kind].into_iter().chain(rights).collect()
}

/// Year, month and day of a number of days since 1970 (Howard Hinnant's algorithm).
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(-1), (1969, 12, 31));
        assert_eq!(date(20_818), (2026, 12, 31));
    }

    #[test]
    fn modes_are_shown_as_ls_does() {
        assert_eq!(mode(0o100_644), "-rw-r--r--");
        assert_eq!(mode(0o040_755), "drwxr-xr-x");
        assert_eq!(mode(0o120_777), "lrwxrwxrwx");
    }

    #[test]
    fn only_what_a_client_names_is_wanted() {
        let message = Message::part().u32(SIZE | TIMES).u64(5).u32(1).u32(2).into_bytes();
        let wanted = Wanted::read(&mut Reader::new(&message)).unwrap();
        assert_eq!(wanted, Wanted { size: Some(5), times: Some((1, 2)), ..Wanted::default() });
        assert!(Wanted::read(&mut Reader::new(&[0, 0, 0, 1, 0])).is_err());
    }
}
