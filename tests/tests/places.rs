//! State directories that cannot be used: the command that needed a gateway says why there is none, and what helps.

use holdfast_tests::{Area, Finished, Host, everyone};

/// Mounts something over the state directory, runs the command within `line`, and ends the gateway if it has started one.
fn over_a_mount(area: &Area, options: &str, line: &str) -> Finished {
    let script = format!(
        "mount -t tmpfs -o {options} none \"$HOLDFAST_STATE_DIR\" && {{ {line}; }}; status=$?
         pid=$(cat \"$HOLDFAST_RUNTIME_DIR/gateway.pid\" 2>/dev/null) && kill \"$pid\" 2>/dev/null &&
             while [ -e \"$HOLDFAST_RUNTIME_DIR/gateway.pid\" ]; do sleep 0.02; done
         rm -f \"$HOLDFAST_RUNTIME_DIR/gateway.pid\"; exit $status"
    );
    // The gateway is not needed before, so there is none: nobody asks it to delete what is not there.
    Host::new(area)
        .say("list -o json")
        .under(["unshare", "-rm", "sh", "-c", &script, "sh"])
        .finish()
}

fn told(finished: &Finished, area: &Area, words: &[&str]) {
    assert_eq!(finished.code(), Some(125), "{finished}");
    let state = area.state().display().to_string();
    for word in words.iter().chain(&[state.as_str()]) {
        assert!(finished.stderr.contains(word), "{word}: {finished}");
    }
    assert!(!finished.stderr.contains("logged nothing"), "{finished}");
}

/// The log of the gateway has no room for the reason either.
#[test]
fn the_first_command_says_that_the_disk_is_full() {
    // Nothing, or not enough: the registry is begun and not finished.
    for room in [0, 4, 8] {
        for area in everyone() {
            let fill = format!(
                "head -c $((({SMALL} - {room}) * 1024)) /dev/zero >\"$HOLDFAST_STATE_DIR/fill\""
            );
            let line = format!("{fill} && \"$@\"");

            let refused = over_a_mount(&area, &format!("size={SMALL}k,mode=700"), &line);

            told(
                &refused,
                &area,
                &["No space left on device", "hint: make room"],
            );
            let document = refused.text();
            assert!(document.contains("No space left on device"), "{refused}");
        }
    }
}

#[test]
fn when_there_is_room_again_the_next_command_works() {
    for room in [0, 4, 8] {
        for area in everyone() {
            let line = format!(
                "cd \"$HOLDFAST_STATE_DIR\" && head -c $((({SMALL} - {room}) * 1024)) /dev/zero >fill &&
                 ! \"$@\" >/dev/null && rm fill && \"$@\""
            );

            let roomy = over_a_mount(&area, &format!("size={SMALL}k,mode=700"), &line);

            assert_eq!(roomy.exited(0).text().trim(), "[]", "{roomy}");
        }
    }
}

#[test]
fn a_state_directory_that_cannot_be_written_to_is_named_with_what_helps() {
    for area in everyone() {
        let read_only = over_a_mount(&area, "size=64k,mode=700,ro", "\"$@\"");

        let words = ["Read-only file system", "HOLDFAST_STATE_DIR"];
        told(&read_only, &area, &words);
    }
}

/// The size of the small disk, in KiB.
const SMALL: u64 = 512;
