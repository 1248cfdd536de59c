use super::*;

fn stream(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_mtime(7);
        header.set_size(0);
        let body = if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name(content).expect("a link");
            ""
        } else {
            header.set_size(content.len() as u64);
            content
        };
        // As an attacker would write it: the builder itself refuses such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, body.as_bytes()).expect("appended");
    }
    builder.into_inner().expect("whole")
}

#[test]
fn a_name_or_a_link_that_leads_out_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let base = directory.path().join("base");
    fs::create_dir(&base).expect("made");
    let file = EntryType::Regular;

    let up = stream(&[("../evil", file, "x")]);
    run(&base, &up[..]).expect_err("up and out");
    let through = stream(&[("out", EntryType::Symlink, ".."), ("out/evil", file, "x")]);
    run(&base, &through[..]).expect_err("through a link");
    fs::write(directory.path().join("secret"), "s").expect("written");
    let linked = [
        ("to", EntryType::Symlink, ".."),
        ("stolen", EntryType::Link, "to/secret"),
    ];
    run(&base, &stream(&linked)[..]).expect_err("linked through a link");
    assert!(!base.join("stolen").exists());
    let renamed = stream(&[("../evil", file, "x")]);
    run(&base.join("new"), &renamed[..]).expect_err("up and renamed");

    assert!(!directory.path().join("evil").exists());
}

#[test]
fn set_id_bits_are_left_off() {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, mode) in [
        ("tree", EntryType::Directory, 0o2775),
        ("tree/file", EntryType::Regular, 0o6755),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(7);
        header.set_size(0);
        header.set_path(name).expect("a short name");
        header.set_cksum();
        builder.append(&header, io::empty()).expect("appended");
    }
    let directory = tempfile::tempdir().expect("a directory");

    run(directory.path(), &builder.into_inner().expect("whole")[..]).expect("unpacked");

    let mode = |name: &str| {
        let known = fs::metadata(directory.path().join(name)).expect("there");
        known.permissions().mode() & 0o7777
    };
    assert_eq!((mode("tree"), mode("tree/file")), (0o775, 0o755));
}

#[test]
fn a_file_takes_the_place_of_a_link_and_not_of_what_it_leads_to() {
    let directory = tempfile::tempdir().expect("a directory");
    let (precious, link) = (
        directory.path().join("precious"),
        directory.path().join("link"),
    );
    fs::write(&precious, "precious").expect("written");
    symlink(&precious, &link).expect("linked");

    run(&link, &stream(&[("any", EntryType::Regular, "new")])[..]).expect("unpacked");

    assert_eq!(fs::read_to_string(&precious).expect("read"), "precious");
    assert_eq!(fs::read_to_string(&link).expect("read"), "new");
}

#[test]
fn a_stream_that_breaks_off_is_a_failure() {
    let directory = tempfile::tempdir().expect("a directory");
    let whole = stream(&[("file", EntryType::Regular, "0123456789")]);

    let failed = run(directory.path(), &whole[..515]).expect_err("broken");

    assert!(!failed.to_string().is_empty());
}

#[test]
fn what_ends_early_damages_nothing_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    fs::write(place.join("file"), "old").expect("written");
    let long = "x".repeat(3000);
    let whole = stream(&[("file", EntryType::Regular, &long)]);

    // In the middle, at the end of the content, and just before the archive's end.
    for length in [515, 512 + 3000, whole.len() - 1024] {
        run(place, &whole[..length]).expect_err("cut off");
        run(&place.join("new"), &whole[..length]).expect_err("cut off");
    }
    let tree = stream(&[
        ("t", EntryType::Directory, ""),
        ("t/f", EntryType::Regular, &long),
    ]);
    run(&place.join("tree"), &tree[..2000]).expect_err("cut off");

    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), "old");
    assert_eq!(fs::read_dir(place).expect("read").count(), 1);
    run(place, &whole[..]).expect("unpacked");
    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), long);
}

#[test]
fn several_parts_have_no_room_under_one_new_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let new = directory.path().join("new");
    let file = EntryType::Regular;
    let files = stream(&[("a", file, "x"), ("b", file, "y")]);
    let trees = stream(&[("a", EntryType::Directory, ""), ("b", file, "y")]);

    for several in [files, trees] {
        let failed = run(&new, &several[..]).expect_err("refused").to_string();
        assert!(failed.contains("make the directory first"), "{failed}");
        assert!(fs::symlink_metadata(&new).is_err(), "nothing is made");
    }
}

#[test]
fn the_head_of_an_archive_is_no_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let new = directory.path().join("new");
    let entries = [
        (
            "pax_global_header",
            EntryType::XGlobalHeader,
            "13 comment=x\n",
        ),
        ("a", EntryType::Regular, "x"),
    ];

    run(&new, &stream(&entries)[..]).expect("unpacked");

    assert_eq!(fs::read_to_string(&new).expect("read"), "x");
}
