//! A path that is listed through a symbolic link is the place that the link leads to. (Promise 2.)

use holdfast_tests::{Area, Policy, Run, everyone};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// `real`, and `link` that leads to it, where no sandbox may write.
fn linked(area: &Area) -> (PathBuf, PathBuf) {
    let real = area.directory(&area.root().join("real"));
    let link = area.root().join("link");
    symlink(&real, &link).expect("link");
    (real, link)
}

const STRICT: &str = "landlock: {compatibility: hard_requirement}";

#[test]
fn a_working_directory_that_is_read_only_by_a_link_stays_so() {
    for area in everyone() {
        let (real, link) = linked(&area);
        for listed in [&link, &real] {
            for started in [&link, &real] {
                let policy = Policy::offline().read_only(listed).with(STRICT);
                let done = Run::new(&area, &policy)
                    .directory(started)
                    .shell("cd . && touch written 2>/dev/null && echo written; true")
                    .finish();
                assert_eq!(done.exited(0).text(), "", "{}: {done}", listed.display());
                assert!(!real.join("written").exists(), "{done}");
            }
        }
    }
}

#[test]
fn one_place_under_two_names_is_not_both_read_only_and_read_write() {
    for area in everyone() {
        let (real, link) = linked(&area);
        for (read_only, read_write) in [(&link, &real), (&real, &link)] {
            let policy = Policy::offline()
                .read_only(read_only)
                .read_write(read_write);
            let done = Run::new(&area, &policy).shell("echo started").finish();
            assert_eq!(done.exited(125).text(), "", "nothing was started: {done}");
            let told = format!(
                "{} in read_only and {} in read_write",
                read_only.display(),
                read_write.display()
            );
            assert!(done.stderr.contains(&told), "both are named: {done}");
        }
    }
}

#[test]
fn the_root_is_not_writable_by_a_link_to_it() {
    for area in everyone() {
        let link = area.root().join("everything");
        symlink("/", &link).expect("link");

        let written = Run::new(&area, &Policy::offline().read_write(&link))
            .shell("echo started")
            .finish();
        let read = Run::new(&area, &Policy::offline().read_only(&link))
            .shell("ls -d /var && touch /var/tmp/written 2>/dev/null || echo kept")
            .finish();

        assert_eq!(written.exited(125).text(), "", "{written}");
        assert!(
            written.stderr.contains(&*link.to_string_lossy()),
            "{written}"
        );
        assert_eq!(read.exited(0).text(), "/var\nkept\n", "{read}");
    }
}

/// LL-07: the place that the sandbox may write to is known by where it lies, whatever the policy calls it.
#[test]
fn a_link_that_one_run_leaves_behind_a_link_opens_nothing_to_the_next() {
    for area in everyone() {
        let (real, link) = linked(&area);
        let secret = area.directory(&area.root().join("secret"));
        let build = area.directory(&real.join("build"));
        let policy = Policy::offline().read_write(&link).read_write(&build);
        let script = format!(
            "rm -r {0} && ln -s {1} {0}",
            build.display(),
            secret.display()
        );
        Run::new(&area, &policy).shell(&script).finish();
        assert!(build.is_symlink(), "what is written to is its own");

        let done = Run::new(&area, &policy).shell("echo started").finish();

        assert_eq!(done.exited(125).text(), "", "nothing was started: {done}");
        assert!(done.stderr.contains("build"), "the link is named: {done}");
    }
}

#[test]
fn the_kernels_settings_stay_read_only_to_whoever_starts_among_them() {
    for area in everyone() {
        let done = Run::with_text(&area, "version: 1\n")
            .directory("/sys/kernel")
            .shell("grep -c ' /sys[^ ]* sysfs rw' /proc/mounts")
            .finish();
        assert_eq!(done.text(), "0\n", "{done}");
    }
}
