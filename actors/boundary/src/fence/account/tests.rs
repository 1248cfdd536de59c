//! Whom a workload runs as, by the files of a small root.

use super::*;

const ROOT: u32 = 0;
const ORDINARY: u32 = 1500;

/// Who is planned for a policy with `process` when `uid` calls, with a group of the same number.
fn planned(uid: u32, process: &str) -> Result<Option<(u32, u32)>, String> {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(root.path().join("etc")).expect("creates");
    let passwd = "root:x:0:0::/:/bin/sh\nagent:x:1500:1600::/:/bin/sh\nstaff:x:1500:1700::/:\n";
    std::fs::write(root.path().join("etc/passwd"), passwd).expect("writes");
    std::fs::write(
        root.path().join("etc/group"),
        "agents:x:1600:\nown:x:1500:\n",
    )
    .expect("writes");
    let path = root.path().to_owned();
    let host = Host {
        uid: Uid::from_raw(uid),
        gid: Gid::from_raw(uid),
        ..Host::look(path.clone(), path.clone(), path)
    };
    let text = format!("version: 1\nprocess: {{{process}}}\n");
    let policy = Policy::parse("policy.yaml", &text).expect("is valid");
    let user = user(&policy, &host).map_err(|unplanned| unplanned.to_string())?;
    Ok(user.map(|(uid, gid)| (uid.as_raw(), gid.as_raw())))
}

#[test]
fn an_ordinary_user_may_name_himself_and_nothing_is_changed() {
    for own in [
        "run_as_user: 1500",
        "run_as_user: agent",
        "run_as_group: 1500",
        "run_as_group: own",
        "run_as_user: agent, run_as_group: own",
    ] {
        assert_eq!(planned(ORDINARY, own), Ok(None), "{own}");
    }
}

#[test]
fn an_ordinary_user_may_not_name_anybody_else() {
    for (foreign, key) in [
        ("run_as_user: root", "process.run_as_user is 0"),
        ("run_as_user: 7", "process.run_as_user is 7"),
        (
            "run_as_user: 1500, run_as_group: agents",
            "process.run_as_group is 1600",
        ),
    ] {
        let refused = planned(ORDINARY, foreign).expect_err(foreign);
        assert!(refused.starts_with(key), "{refused}");
    }
}

#[test]
fn a_user_has_the_group_of_his_own_line_unless_another_is_named() {
    for (process, who) in [
        ("run_as_user: agent", (1500, 1600)),
        ("run_as_user: staff", (1500, 1700)),
        ("run_as_user: 1500", (1500, 1600)),
        ("run_as_user: agent, run_as_group: own", (1500, 1500)),
        ("run_as_user: 7, run_as_group: 0", (7, 0)),
        ("run_as_user: root", (0, 0)),
        ("run_as_group: agents", (0, 1600)),
    ] {
        assert_eq!(planned(ROOT, process), Ok(Some(who)), "{process}");
    }
}

#[test]
fn a_user_without_a_line_is_given_no_group_unasked() {
    let refused = planned(ROOT, "run_as_user: 7").expect_err("has no group");

    assert!(refused.contains("write process.run_as_group"), "{refused}");
}
