//! Sets up a terminal with the size and modes of the client's own (RFC 4254, 8).

use std::io;
use std::os::fd::AsFd;

use rustix::pty::ptsname;
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, Winsize,
    tcgetattr, tcsetattr, tcsetwinsize,
};

use crate::wire::Reader;

#[derive(Clone, Copy)]
pub struct Size {
    pub columns: u32,
    pub rows: u32,
}

/// Gives a new terminal the client's size and modes. Returns its path.
pub fn set_up(end: impl AsFd, command_end: impl AsFd, size: Size, modes: &[u8]) -> io::Result<String> {
    resize(&end, size)?;
    let mut settings = tcgetattr(&command_end)?;
    apply(&mut settings, modes);
    tcsetattr(&command_end, OptionalActions::Now, &settings)?;
    Ok(ptsname(end, Vec::new())?.to_string_lossy().into_owned())
}

pub fn resize(end: impl AsFd, size: Size) -> io::Result<()> {
    let cells = |count: u32| count.min(u16::MAX.into()) as u16;
    let size = Winsize { ws_row: cells(size.rows), ws_col: cells(size.columns), ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(end, size)?)
}

/// Applies the client's modes to the settings. Unknown modes are ignored.
fn apply(settings: &mut Termios, modes: &[u8]) {
    let mut reader = Reader::new(modes);
    // 0 ends the modes. From 160 on the length of a mode's argument is unknown.
    while let Ok(mode @ 1..160) = reader.u8() {
        let Ok(value) = reader.u32() else { return };
        apply_one(settings, mode, value);
    }
}

fn apply_one(settings: &mut Termios, mode: u8, value: u32) {
    if let Some(index) = special_code(mode) {
        // 255 disables the key.
        settings.special_codes[index] = if value == 255 { 0 } else { value as u8 };
        return;
    }
    let is_on = value != 0;
    match mode {
        30 => settings.input_modes.set(InputModes::IGNPAR, is_on),
        31 => settings.input_modes.set(InputModes::PARMRK, is_on),
        32 => settings.input_modes.set(InputModes::INPCK, is_on),
        33 => settings.input_modes.set(InputModes::ISTRIP, is_on),
        34 => settings.input_modes.set(InputModes::INLCR, is_on),
        35 => settings.input_modes.set(InputModes::IGNCR, is_on),
        36 => settings.input_modes.set(InputModes::ICRNL, is_on),
        38 => settings.input_modes.set(InputModes::IXON, is_on),
        39 => settings.input_modes.set(InputModes::IXANY, is_on),
        40 => settings.input_modes.set(InputModes::IXOFF, is_on),
        41 => settings.input_modes.set(InputModes::IMAXBEL, is_on),
        42 => settings.input_modes.set(InputModes::IUTF8, is_on),
        50 => settings.local_modes.set(LocalModes::ISIG, is_on),
        51 => settings.local_modes.set(LocalModes::ICANON, is_on),
        53 => settings.local_modes.set(LocalModes::ECHO, is_on),
        54 => settings.local_modes.set(LocalModes::ECHOE, is_on),
        55 => settings.local_modes.set(LocalModes::ECHOK, is_on),
        56 => settings.local_modes.set(LocalModes::ECHONL, is_on),
        57 => settings.local_modes.set(LocalModes::NOFLSH, is_on),
        58 => settings.local_modes.set(LocalModes::TOSTOP, is_on),
        59 => settings.local_modes.set(LocalModes::IEXTEN, is_on),
        60 => settings.local_modes.set(LocalModes::ECHOCTL, is_on),
        61 => settings.local_modes.set(LocalModes::ECHOKE, is_on),
        62 => settings.local_modes.set(LocalModes::PENDIN, is_on),
        70 => settings.output_modes.set(OutputModes::OPOST, is_on),
        72 => settings.output_modes.set(OutputModes::ONLCR, is_on),
        73 => settings.output_modes.set(OutputModes::OCRNL, is_on),
        74 => settings.output_modes.set(OutputModes::ONOCR, is_on),
        75 => settings.output_modes.set(OutputModes::ONLRET, is_on),
        90 => settings.control_modes.set(ControlModes::CS7, is_on),
        91 => settings.control_modes.set(ControlModes::CS8, is_on),
        92 => settings.control_modes.set(ControlModes::PARENB, is_on),
        93 => settings.control_modes.set(ControlModes::PARODD, is_on),
        _ => {}
    }
}

fn special_code(mode: u8) -> Option<SpecialCodeIndex> {
    use SpecialCodeIndex as Code;
    Some(match mode {
        1 => Code::VINTR,
        2 => Code::VQUIT,
        3 => Code::VERASE,
        4 => Code::VKILL,
        5 => Code::VEOF,
        6 => Code::VEOL,
        7 => Code::VEOL2,
        8 => Code::VSTART,
        9 => Code::VSTOP,
        10 => Code::VSUSP,
        12 => Code::VREPRINT,
        13 => Code::VWERASE,
        14 => Code::VLNEXT,
        18 => Code::VDISCARD,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, openpt, unlockpt};
    use rustix::termios::tcgetwinsize;
    use std::os::fd::OwnedFd;

    fn terminal(size: Size, modes: &[u8]) -> (OwnedFd, OwnedFd) {
        let end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        unlockpt(&end).unwrap();
        let path = ptsname(&end, Vec::new()).unwrap();
        let command_end = rustix::fs::open(&path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        assert_eq!(set_up(&end, &command_end, size, modes).unwrap(), path.to_str().unwrap());
        (end, command_end)
    }

    #[test]
    fn a_terminal_has_the_clients_size_and_modes() {
        let modes = [3, 0, 0, 0, 8, 53, 0, 0, 0, 0, 42, 0, 0, 0, 1, 2, 0, 0, 0, 255, 0];
        let (end, command_end) = terminal(Size { columns: 132, rows: 100_000 }, &modes);
        let settings = tcgetattr(&command_end).unwrap();
        assert_eq!(settings.special_codes[SpecialCodeIndex::VERASE], 8);
        assert_eq!(settings.special_codes[SpecialCodeIndex::VQUIT], 0);
        assert!(!settings.local_modes.contains(LocalModes::ECHO));
        assert!(settings.input_modes.contains(InputModes::IUTF8));
        let size = tcgetwinsize(&end).unwrap();
        assert_eq!((size.ws_col, size.ws_row), (132, u16::MAX));
        resize(&end, Size { columns: 0, rows: 1 }).unwrap();
        assert_eq!(tcgetwinsize(&end).unwrap().ws_col, 0);
    }

    #[test]
    fn modes_that_are_cut_off_or_unknown_change_nothing_else() {
        for modes in [&[53, 0, 0][..], &[200, 0, 0, 0, 0, 53, 0, 0, 0, 0], &[99, 0, 0, 0, 0]] {
            let (_end, command_end) = terminal(Size { columns: 80, rows: 24 }, modes);
            let settings = tcgetattr(&command_end).unwrap();
            assert!(settings.local_modes.contains(LocalModes::ECHO), "{modes:?}");
        }
    }
}
