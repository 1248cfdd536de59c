//! The plan of the view, made over small roots of its own.

use std::os::unix::fs::symlink;

use super::*;

/// A root with `/usr/bin`, `/bin -> usr/bin`, `/etc/resolv.conf -> ../run/stub`, `/data/a`.
fn root(name: &str) -> PathBuf {
    let root = std::env::temp_dir().join(format!("view-{name}-{}", std::process::id()));
    for directory in ["usr/bin", "etc", "run", "data/a", "tmp", "proc", "dev"] {
        fs::create_dir_all(root.join(directory)).expect("directory");
    }
    fs::write(
        root.join("run/stub"),
        "search corp.test\nnameserver 10.0.0.1\noptions ndots:2\n",
    )
    .expect("stub");
    let _ = symlink("usr/bin", root.join("bin"));
    let _ = symlink("../run/stub", root.join("etc/resolv.conf"));
    let _ = symlink("/data/a", root.join("usr/link"));
    root
}

#[test]
fn a_listed_link_shows_its_target_and_stays_a_link() {
    let mut view = View::of(&root("link"));

    view.show(Path::new("/bin"), Access::Read);
    view.show(Path::new("/usr/link"), Access::Write);

    assert_eq!(
        view.links.get(Path::new("/bin")),
        Some(&PathBuf::from("usr/bin"))
    );
    assert_eq!(view.entries.get(Path::new("/usr/bin")), Some(&Access::Read));
    assert_eq!(view.entries.get(Path::new("/data/a")), Some(&Access::Write));
}

#[test]
fn the_resolver_is_configured_where_the_link_leads() {
    let mut view = View::of(&root("resolver"));
    view.show(Path::new("/etc"), Access::Read);

    view.set_resolver("198.18.0.1").expect("a file");

    let text = view.covers.get(Path::new("/run/stub")).map(String::as_str);
    assert_eq!(
        text,
        Some("nameserver 198.18.0.1\nsearch corp.test\noptions ndots:2\n")
    );
}

/// The kernel's files are the host's, whoever's root it is that leads there.
#[test]
fn the_resolver_is_configured_in_nothing_that_is_there() {
    let refused = |name, target: &str| {
        let root = root(name);
        fs::remove_file(root.join("etc/resolv.conf")).expect("remove");
        symlink(target, root.join("etc/resolv.conf")).expect("link");
        let mut view = View::of(&root);
        view.show(Path::new("/data/a"), Access::Read);
        view.set_resolver("198.18.0.1").err()
    };

    for (name, target) in [
        ("kernels", "/proc/sys/kernel/hostname"),
        ("device", "../dev/null"),
        ("own", "/dev/x"),
        ("own-directory", "/tmp"),
        ("own-memory", "/dev/shm"),
    ] {
        assert!(matches!(refused(name, target), Some(Unfit::Own { .. })));
    }
    for (name, target) in [("root", "/"), ("above", "/data"), ("listed", "../data/a")] {
        assert!(matches!(refused(name, target), Some(Unfit::Directory(_))));
    }
    assert!(matches!(
        refused("circle", "resolv.conf"),
        Some(Unfit::Circle(_))
    ));
    assert!(refused("shared-memory", "/dev/shm/x").is_none());
}

/// What is bound there would lie below the sandbox's own mounts, where no rule finds it.
#[test]
fn what_lies_in_the_sandboxes_own_mounts_is_not_the_hosts() {
    let root = root("own-mounts");
    let mut view = View::of(&root);
    for (name, own) in [("terminal", "pts/0"), ("queue", "mqueue/x")] {
        let place = root.join("dev").join(own);
        fs::create_dir_all(place.parent().expect("above")).expect("directory");
        fs::write(&place, "").expect("file");
        let own = Path::new("/dev").join(own);
        let _ = symlink(&own, root.join("data").join(name));

        view.show(&own, Access::Write);
        view.show(&Path::new("/data").join(name), Access::Write);
    }

    assert!(view.devices.is_empty() && view.entries.is_empty());
}

#[test]
fn what_is_not_there_is_noted() {
    let mut view = View::of(&root("missing"));

    view.show(Path::new("/nowhere"), Access::Read);

    assert_eq!(view.missing, [PathBuf::from("/nowhere")]);
    assert!(view.entries.is_empty());
}

#[test]
fn the_sandboxs_own_directories_are_never_the_hosts() {
    let mut view = View::of(&root("own"));

    view.show(Path::new("/"), Access::Write);
    view.show(Path::new("/proc"), Access::Read);
    view.show(Path::new("/tmp"), Access::Write);

    let shown: Vec<_> = view
        .entries
        .keys()
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    assert_eq!(shown, ["/data", "/etc", "/usr"]);
}

#[test]
fn a_working_directory_is_reachable_only_in_the_view() {
    let mut view = View::of(&root("reach"));
    view.show(Path::new("/data/a"), Access::Write);

    assert!(view.reaches(Path::new("/data/a")));
    assert!(view.reaches(Path::new("/")));
    assert!(view.reaches(Path::new("/data")), "its skeleton is there");
    assert!(!view.reaches(Path::new("/etc")));
    assert!(!view.reaches(Path::new("/nowhere")));
    assert!(
        !view.reaches(Path::new("/usr/link")),
        "the link itself is not shown"
    );
    view.show(Path::new("/usr"), Access::Read);
    assert!(view.reaches(Path::new("/usr/link")));
    assert!(view.reaches(Path::new("/bin")), "the root's links are kept");
}

#[test]
fn links_that_lead_in_circles_end() {
    let root = root("circle");
    let _ = symlink("circle", root.join("circle"));
    let mut view = View::of(&root);

    view.show(Path::new("/circle/x"), Access::Read);
    view.show(Path::new("/circle"), Access::Read);

    let nowhere = ["/circle/x", "/circle"].map(PathBuf::from);
    assert_eq!(view.missing, nowhere);
}

#[test]
fn what_is_shown_already_needs_no_mount_of_its_own() {
    let mut view = View::of(&root("mounts"));
    view.show(Path::new("/usr"), Access::Read);
    view.show(Path::new("/bin"), Access::Read);
    view.show(Path::new("/data"), Access::Write);
    view.show(Path::new("/data/a"), Access::Read);

    let mounts: Vec<_> = view.mounts().into_iter().collect();

    assert_eq!(
        mounts,
        [
            (Path::new("/data"), Access::Write),
            (Path::new("/data/a"), Access::Read),
            (Path::new("/usr"), Access::Read),
        ]
    );
}

/// LL-05: every directory on the way from what may be changed to what may not is a mount.
#[test]
fn what_leads_to_a_protected_path_is_pinned() {
    let root = root("pinned");
    for directory in ["data/a/git/hooks", "data/a/own/state", "usr/a/b"] {
        fs::create_dir_all(root.join(directory)).expect("directory");
    }
    let mut view = View::of(&root);
    view.show(Path::new("/data"), Access::Write);
    view.show(Path::new("/data/a/git"), Access::Write);
    view.show(Path::new("/data/a/git/hooks"), Access::Read);
    view.show(Path::new("/usr"), Access::Read);
    view.show(Path::new("/usr/a/b"), Access::Write);
    view.hide(&root.join("data/a/own/state")).expect("hidden");

    let mounts: Vec<_> = view.mounts().into_iter().collect();

    assert_eq!(
        mounts,
        [
            (Path::new("/data"), Access::Write),
            (Path::new("/data/a"), Access::Write),
            (Path::new("/data/a/git"), Access::Write),
            (Path::new("/data/a/git/hooks"), Access::Read),
            (Path::new("/data/a/own"), Access::Write),
            (Path::new("/usr"), Access::Read),
            (Path::new("/usr/a/b"), Access::Write),
        ]
    );
}

#[test]
fn a_link_that_the_sandbox_may_have_made_itself_is_not_followed() {
    let root = root("planted");
    fs::create_dir_all(root.join("secret")).expect("secret");
    let _ = symlink("/secret", root.join("data/a/build"));
    let mut view = View::of(&root);
    view.writable = vec![PathBuf::from("/data/a"), PathBuf::from("/data/a/build")];

    view.show(Path::new("/data/a"), Access::Write);
    view.show(Path::new("/data/a/build"), Access::Write);
    view.show(Path::new("/usr/link"), Access::Write);

    assert_eq!(view.planted, [PathBuf::from("/data/a/build")]);
    assert!(!view.entries.contains_key(Path::new("/secret")));
    assert!(
        view.entries.contains_key(Path::new("/data/a")),
        "a link elsewhere is"
    );
}

#[test]
fn the_runtimes_own_directory_is_covered_up_where_it_would_be_seen() {
    let root = root("hidden");
    fs::create_dir_all(root.join("data/a/state")).expect("state");
    let mut view = View::of(&root);
    view.show(Path::new("/data/a"), Access::Write);

    view.hide(&root.join("data/a/state")).expect("covered up");
    view.hide(&root.join("run")).expect("not seen at all");
    view.hide(&root.join("nosuch")).expect("not there");
    view.hide(Path::new("/")).expect("outside of this root");

    assert_eq!(view.hidden, [PathBuf::from("/data/a/state")]);
    assert!(view.reaches(Path::new("/data/a")));
    assert!(!view.reaches(Path::new("/data/a/state")));
}

#[test]
fn what_is_listed_within_the_runtimes_own_directory_is_refused() {
    let root = root("within");
    let mut view = View::of(&root);
    view.show(Path::new("/data/a"), Access::Read);

    let refused = view.hide(&root.join("data"));

    assert_eq!(refused, Err(PathBuf::from("/data/a")));
}

/// As [`root`], with `resolv.conf` a link to `target`, if one is given.
fn lacking(name: &str, target: Option<&str>) -> PathBuf {
    let root = root(name);
    fs::remove_file(root.join("etc/resolv.conf")).expect("remove");
    if let Some(target) = target {
        symlink(target, root.join("etc/resolv.conf")).expect("link");
    }
    for directory in ["etc/own", "etc/also", "etc/deep/er"] {
        fs::create_dir_all(root.join(directory)).expect("directory");
    }
    root
}

/// Where the resolver's configuration is added: directory and file.
fn added(view: &mut View) -> Option<(&Path, &Path)> {
    view.set_resolver("198.18.0.1").expect("a file");
    let addition = view.addition.as_ref();
    addition.map(|added| (added.directory.as_path(), added.file.as_path()))
}

#[test]
fn a_resolvers_file_that_is_not_there_is_added_to_what_is_read() {
    for (name, target, shown, directory, file) in [
        ("added", None, "/etc", "/etc", "resolv.conf"),
        ("added-link", Some("deep/x"), "/etc", "/etc/deep", "x"),
        ("added-far", Some("/data/a/b/c"), "/data", "/data/a", "b/c"),
    ] {
        let mut view = View::of(&lacking(name, target));
        view.show(Path::new(shown), Access::Read);

        let added = added(&mut view);

        assert_eq!(added, Some((Path::new(directory), Path::new(file))));
        assert!(view.covers.is_empty());
        assert_eq!(
            view.mounts().get(Path::new(directory)),
            Some(&Access::Read),
            "there is a mount to lay it on"
        );
    }
}

#[test]
fn what_is_listed_below_an_addition_is_a_mount_of_its_own() {
    let mut view = View::of(&lacking("added-below", None));
    view.show(Path::new("/etc"), Access::Read);
    view.show(Path::new("/etc/own"), Access::Write);
    view.show(Path::new("/etc/also"), Access::Read);
    view.show(Path::new("/etc/deep/er"), Access::Read);

    added(&mut view);

    let mounts: Vec<_> = view.mounts().into_iter().collect();
    assert_eq!(
        mounts,
        [
            (Path::new("/etc"), Access::Read),
            (Path::new("/etc/also"), Access::Read),
            (Path::new("/etc/deep/er"), Access::Read),
            (Path::new("/etc/own"), Access::Write),
        ]
    );
}

/// Root may write anywhere.
#[test]
fn a_place_is_made_in_what_may_be_written_to_and_nothing_is_added() {
    use std::os::unix::fs::PermissionsExt;

    let root = lacking("added-writable", None);
    let planned = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(root.join("etc"), mode).expect("chmod");
        let mut view = View::of(&root);
        view.show_everything(Access::Write);
        let is_added = added(&mut view).is_some();
        let access = view.covering(Path::new("/etc")).map(|(_, access)| access);
        let covered = view.covers.into_keys().next();
        assert_eq!(covered, view.placeholder, "it is covered where it is made");
        (is_added, access, view.placeholder)
    };

    let (writable, not) = (planned(0o755), planned(0o555));

    let place = PathBuf::from("/etc/resolv.conf");
    let kept = (false, Some(Access::Write), Some(place));
    assert_eq!(writable, kept);
    let is_root = nix::unistd::geteuid().is_root();
    let fixed = if is_root {
        kept
    } else {
        (true, Some(Access::Read), None)
    };
    assert_eq!(not, fixed);
    planned(0o755);
}

#[test]
fn no_directory_is_made_for_a_place() {
    let mut view = View::of(&lacking("place-below", Some("/data/a/b/c")));
    view.show_everything(Access::Write);

    assert_eq!(added(&mut view), None);

    assert_eq!((view.placeholder, view.covers.len()), (None, 0));
}

/// Whoever mounts on one and does not hold it loses the mount with the last one who does.
#[test]
fn a_place_that_another_sandbox_has_made_is_shared_however_it_is_shown() {
    use std::os::unix::fs::PermissionsExt;

    let root = lacking("place-shared", None);
    let path = Path::new("/etc/resolv.conf");
    let planned = |mode, access| {
        fs::write(root.join("etc/resolv.conf"), "").expect("written");
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(root.join("etc/resolv.conf"), mode).expect("chmod");
        let mut view = View::of(&root);
        view.show(Path::new("/etc"), access);
        assert_eq!(added(&mut view), None);
        assert!(view.covers.contains_key(path));
        view.placeholder.is_some()
    };

    for access in [Access::Read, Access::Write] {
        assert!(planned(0o1644, access), "{access:?}");
        assert!(!planned(0o644, access), "{access:?}");
    }
}

#[test]
fn nothing_is_added_where_a_file_has_its_place() {
    let mut there = View::of(&root("added-there"));
    there.show(Path::new("/etc"), Access::Read);
    let mut own = View::of(&lacking("added-own", None));
    own.show(Path::new("/usr"), Access::Read);
    let mut no_directory = View::of(&lacking("added-file", Some("/data/a/file/x")));
    fs::write(no_directory.source(Path::new("/data/a/file")), "").expect("file");
    no_directory.show(Path::new("/data"), Access::Read);

    for view in [&mut there, &mut own, &mut no_directory] {
        assert_eq!(added(view), None);
    }
    assert!(own.covers.contains_key(Path::new("/etc/resolv.conf")));
    assert!(no_directory.covers.is_empty());
}
