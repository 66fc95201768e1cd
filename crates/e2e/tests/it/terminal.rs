//! A program on a terminal, for stories that a pipe cannot tell: `exec -it`, `attach -it`.

use crate::binary::PATIENCE;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A program that runs on a terminal of 80 columns and 24 rows.
pub struct Terminal {
    child: Child,
    keyboard: File,
    shown: Receiver<Vec<u8>>,
    screen: String,
}

impl Terminal {
    pub fn start(command: &mut Command) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let near = openpt(flags).expect("a terminal");
        grantpt(&near).expect("a terminal");
        unlockpt(&near).expect("a terminal");
        let far = ioctl_tiocgptpeer(&near, flags).expect("its far side");
        let size = Winsize {
            ws_col: 80,
            ws_row: 24,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&near, size).expect("a size");
        let end = || far.try_clone().expect("a descriptor");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn();
        let keyboard = File::from(near);
        let mut reader = keyboard.try_clone().expect("a descriptor");
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            child: child.expect("the program starts"),
            keyboard,
            shown,
            screen: String::new(),
        }
    }

    pub fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("the terminal takes it");
    }

    /// Waits until the screen shows this, after all that was waited for before.
    #[track_caller]
    pub fn shows(&mut self, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(place) = self.screen.find(wanted) {
                self.screen.drain(..place + wanted.len());
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("the screen never shows {wanted:?}, only {:?}", self.screen),
            }
        }
    }

    #[track_caller]
    pub fn ends(mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "it does not end; the screen shows {:?}",
                self.screen
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
