use super::*;
use bytes::Bytes;
use std::os::unix::fs::PermissionsExt as _;
use tokio::sync::mpsc;

/// What a sandbox may send.
struct Sent(tar::Builder<Vec<u8>>);

impl Sent {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn with(mut self, kind: tar::EntryType, name: &str, content: &str) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        // Names that the library would refuse to write are what we are here for.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_link_name(content).expect("fits");
            header.set_size(0);
            header.set_cksum();
            self.0.append(&header, io::empty()).expect("appends");
        } else {
            header.set_size(content.len() as u64);
            header.set_cksum();
            self.0.append(&header, content.as_bytes()).expect("appends");
        }
        self
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.with(tar::EntryType::Regular, name, content)
    }

    fn directory(self, name: &str) -> Self {
        self.with(tar::EntryType::Directory, name, "")
    }

    fn put(self, destination: &Path) -> Result<(), Failure> {
        let bytes = self.0.into_inner().expect("finishes");
        let (say, heard) = mpsc::channel(1 + bytes.len() / 100);
        for chunk in bytes.chunks(100) {
            say.try_send(Bytes::copy_from_slice(chunk))
                .expect("has room");
        }
        drop(say);
        stage(Reader::new(heard), destination)?.commit()
    }
}

fn place() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(path).expect("is there")
}

/// Nothing but these is left at the top.
fn holds(directory: &Path, names: &[&str]) {
    assert_eq!(names_in(directory).expect("reads"), names);
}

#[test]
fn a_file_becomes_the_destination_or_lands_in_it() {
    let place = place();

    Sent::new()
        .file("a", "one")
        .put(&place.path().join("b"))
        .expect("copies");
    Sent::new()
        .file("a", "two")
        .put(place.path())
        .expect("copies");
    Sent::new()
        .file("a", "three")
        .put(&place.path().join("b"))
        .expect("replaces");

    assert_eq!(read(place.path().join("b")), "three");
    assert_eq!(read(place.path().join("a")), "two");
    holds(place.path(), &["a", "b"]);
}

#[test]
fn a_tree_becomes_the_destination_or_is_merged_into_what_is_there() {
    let place = place();
    let tree = || Sent::new().directory("d").file("d/x", "new");

    tree().put(&place.path().join("e")).expect("copies");
    fs::create_dir(place.path().join("d")).expect("creates");
    fs::write(place.path().join("d/y"), "old").expect("writes");
    tree().put(place.path()).expect("merges");

    assert_eq!(read(place.path().join("e/x")), "new");
    assert_eq!(read(place.path().join("d/x")), "new");
    assert_eq!(read(place.path().join("d/y")), "old");
    holds(place.path(), &["d", "e"]);
}

#[test]
fn the_content_of_a_directory_comes_without_its_name() {
    let place = place();
    let content = || {
        Sent::new()
            .directory("./")
            .file("./x", "1")
            .file("./y", "2")
    };

    content().put(&place.path().join("fresh")).expect("copies");

    assert_eq!(read(place.path().join("fresh/x")), "1");
    assert_eq!(read(place.path().join("fresh/y")), "2");
}

#[test]
fn nothing_leads_out_of_the_destination() {
    let place = place();
    let inside = place.path().join("in");
    fs::create_dir(&inside).expect("creates");
    let outside = place.path().join("out");
    fs::create_dir(&outside).expect("creates");
    let through = |target: &str| {
        Sent::new()
            .with(tar::EntryType::Symlink, "l", target)
            .file("l/x", "escaped")
    };

    for sent in [
        through(outside.to_str().expect("is text")),
        through("../../out"),
        Sent::new().file("../out/x", "escaped"),
        Sent::new().with(tar::EntryType::Link, "h", "/etc/passwd"),
    ] {
        assert!(sent.put(&inside).is_err());
    }
    // An absolute name is one below the destination.
    let _either_way = Sent::new().file("/x", "below").put(&inside);

    holds(&outside, &[]);
    assert!(!place.path().join("x").exists());
}

#[test]
fn a_failure_leaves_the_destination_as_it_was() {
    let place = place();
    fs::write(place.path().join("a"), "old").expect("writes");
    let mut bytes = Sent::new()
        .file("a", "a long new content")
        .0
        .into_inner()
        .expect("finishes");
    bytes.truncate(520);
    let (say, heard) = mpsc::channel(1);
    say.try_send(bytes.into()).expect("has room");
    drop(say);

    let cut = stage(Reader::new(heard), place.path());

    assert!(cut.is_err());
    assert_eq!(read(place.path().join("a")), "old");
    holds(place.path(), &["a"]);
}

#[test]
fn privileges_do_not_come_along_and_devices_and_pipes_are_refused() {
    let place = place();
    for kind in [
        tar::EntryType::Char,
        tar::EntryType::Block,
        tar::EntryType::Fifo,
    ] {
        let sent = Sent::new().directory("d").with(kind, "d/c", "");
        let refused = sent.put(place.path()).expect_err("is refused");
        assert!(refused.message().contains("d/c is a pipe or a device"));
    }
    holds(place.path(), &[]);

    Sent::new()
        .directory("d")
        .file("d/s", "x")
        .put(place.path())
        .expect("copies");

    let mode = fs::metadata(place.path().join("d/s"))
        .expect("is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7000, 0);
    holds(&place.path().join("d"), &["s"]);
}

#[test]
fn an_empty_stream_is_no_copy() {
    let place = place();

    assert!(Sent::new().put(&place.path().join("x")).is_err());
    assert!(check(&place.path().join("no/such")).is_err());
    holds(place.path(), &[]);
}

#[test]
fn devices_and_pipes_at_the_destination_stay_what_they_are() {
    let place = place();
    let pipe = place.path().join("pipe");
    let socket = place.path().join("socket");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    std::os::unix::fs::symlink(&pipe, place.path().join("link")).expect("links");
    let kind = |path: &Path| {
        let there = fs::symlink_metadata(path).expect("is there");
        special(there.file_type())
    };

    for (name, what) in [
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("link", "a pipe"),
    ] {
        let destination = place.path().join(name);
        let failure = check(&destination).expect_err("is refused");
        assert!(failure.message().contains(what), "{}", failure.message());
        assert!(failure.message().contains(name), "{}", failure.message());
        assert!(Sent::new().file("a", "x").put(&destination).is_err());
    }
    assert!(check(Path::new("/dev/null")).is_err());
    // One whose own name meets them, among others that would fit.
    let meets = Sent::new().file("a", "x").file("pipe", "x");
    let failure = meets.put(place.path()).expect_err("is refused");
    assert!(
        failure.message().contains("pipe is a pipe"),
        "{}",
        failure.message()
    );

    assert_eq!(kind(&pipe), Some("a pipe"));
    assert_eq!(kind(&socket), Some("a socket"));
    holds(place.path(), &["link", "pipe", "socket"]);
}

#[test]
fn a_link_at_the_destination_is_followed_and_one_that_leads_nowhere_refused() {
    let place = place();
    let (elsewhere, link) = (place.path().join("in"), place.path().join("link"));
    fs::create_dir(&elsewhere).expect("creates");
    fs::write(elsewhere.join("target"), "old").expect("writes");
    std::os::unix::fs::symlink("in/target", &link).expect("links");
    std::os::unix::fs::symlink("in/nothing", place.path().join("dangling")).expect("links");

    Sent::new().file("a", "new").put(&link).expect("copies");
    let dangling = check(&place.path().join("dangling"));

    assert_eq!(read(elsewhere.join("target")), "new");
    assert!(fs::read_link(&link).is_ok(), "the link stays one");
    assert!(
        dangling
            .expect_err("is refused")
            .message()
            .contains("leads nowhere")
    );
    holds(&elsewhere, &["target"]);
}

#[test]
fn what_does_not_fit_is_found_before_anything_is_moved() {
    let place = place();
    fs::create_dir(place.path().join("b")).expect("creates");

    let failure = Sent::new().file("a", "x").file("b", "x").put(place.path());

    assert!(
        failure
            .expect_err("a file is no directory")
            .message()
            .contains("is a directory")
    );
    holds(place.path(), &["b"]);
}
