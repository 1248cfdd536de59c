//! A file of the view's own that the root has no place for ([why so](../../../../../docs/decisions/0039-add-a-file-by-an-overlay.md)).

use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::{Access, View};

/// A file that is shown in a directory of the root in which there is none of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The real path of the directory: the nearest one that is there.
    pub directory: PathBuf,
    /// The file's path below it.
    pub file: PathBuf,
    /// What it says.
    pub text: String,
}

impl View {
    /// Adds the file `real`, if it is not there, to the directory that would hold it; so far that is shown with `access`. The
    /// directory is then an entry to be read: what is written to an overlay does not reach what it shows. One that is written
    /// to stays as it is, and has a place made for the file ([why so](../../../../../docs/decisions/0040-lend-a-place-for-a-mount.md)).
    pub(super) fn add(&mut self, real: &Path, access: Access, text: String) {
        let found = self.source(real).symlink_metadata();
        if !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return;
        }
        let mut above = real.ancestors().skip(1);
        let Some(directory) = above.find(|above| self.source(above).is_dir()) else {
            return;
        };
        let Ok(file) = real.strip_prefix(directory) else {
            return;
        };
        if access == Access::Write && is_writable(&self.source(directory)) {
            // Directories are not made: nobody could say when they may go.
            if real.parent() == Some(directory) {
                self.placeholder = Some(real.to_owned());
                self.covers.insert(real.to_owned(), text);
            }
            return;
        }
        self.entries.insert(directory.to_owned(), Access::Read);
        self.addition = Some(Addition {
            directory: directory.to_owned(),
            file: file.to_owned(),
            text,
        });
    }
}

/// Whether this user may make files in `directory`.
fn is_writable(directory: &Path) -> bool {
    access(directory, AccessFlags::W_OK).is_ok()
}
