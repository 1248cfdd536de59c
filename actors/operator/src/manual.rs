//! `holdfast man DIR`

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::failure::{Failure, Kind};

/// Writes a manual page for each command. The directory is made if it is not there; what it stands in is not.
pub(crate) fn manual(directory: &Path) -> Result<ExitCode, Failure> {
    make(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .map_err(|error| unwritten(directory, &error))?;
    Ok(ExitCode::SUCCESS)
}

fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let is_directory = fs::metadata(directory)?.is_dir();
            let other = || io::ErrorKind::NotADirectory.into();
            is_directory.then_some(()).ok_or_else(other)
        }
        made => made,
    }
}

fn unwritten(directory: &Path, error: &io::Error) -> Failure {
    let message = format!("write manual pages to {}", directory.display());
    match directory.parent() {
        // A path that is mistyped would become a tree of directories that nobody wanted.
        Some(parent) if error.kind() == io::ErrorKind::NotFound && !parent.exists() => {
            let parent = parent.display();
            Failure::new(
                Kind::OutputFailed,
                format!("{message}: its parent {parent} is not there"),
            )
            .hint(format!("check the path, or make it: `mkdir -p {parent}`"))
        }
        Some(_) | None => Failure::caused(Kind::OutputFailed, message, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directory_itself_is_made() {
        let place = tempfile::tempdir().expect("a directory");
        let [missing, wanted] = ["a", "b"].map(|name| place.path().join(name));

        let failure = manual(&missing.join("man")).expect_err("its parent is not there");
        manual(&wanted).expect("is made");
        manual(&wanted).expect("is there");

        let told = format!("its parent {} is not there", missing.display());
        assert!(failure.message().ends_with(&told), "{}", failure.message());
        assert!(!missing.exists());
        assert!(wanted.join("holdfast.1").exists());
        let file = manual(&wanted.join("holdfast.1")).expect_err("is a file");
        assert!(
            file.message().ends_with("not a directory"),
            "{}",
            file.message()
        );
    }
}
