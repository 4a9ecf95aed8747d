//! `hwctl wait path:…`: existence, changes, missing folders, links.

use std::fs;
use std::os::unix::fs::symlink;

use crate::folder::{Folder, write};
use crate::program::{Ended, Running, command};

/// Starts to wait for a path, runs `act` once it is being waited for, and gives what came.
#[track_caller]
fn wait_while(folder: &Folder, name: &str, act: impl FnOnce()) -> Ended {
    let (mut running, source) = begin(folder, name);
    running.expect_running();
    act();
    let ended = running.finish().expect_code(0);
    assert_eq!(ended.came()[1].0, source);
    ended
}

/// A connection, which comes last, says that the path is being waited for.
#[track_caller]
fn begin(folder: &Folder, name: &str) -> (Running, String) {
    let begun = Folder::new();
    let listener = begun.listen("begun");
    let source = folder.source("path", name);
    let running = Running::start(&mut command(&["wait", "--all", &source, &begun.source("unix", "begun")]));
    listener.accept().expect("it connects when it has begun");
    (running, source)
}

#[test]
fn a_file_that_comes_exists() {
    let folder = Folder::new();
    let ended = wait_while(&folder, "new", || write(&folder.path("new"), ""));
    assert_eq!(ended.came()[1].1, "exists");
    let folder = Folder::new();
    write(&folder.path("other"), "");
    let ended = wait_while(&folder, "new", || {
        fs::rename(folder.path("other"), folder.path("new")).expect("a move");
    });
    assert_eq!(ended.came()[1].1, "exists");
}

#[test]
fn what_came_and_has_gone_again_has_come() {
    let folder = Folder::new();
    let ended = wait_while(&folder, "new", || {
        write(&folder.path("new"), "");
        fs::remove_file(folder.path("new")).expect("a file");
    });
    assert_eq!(ended.came()[1].1, "exists");
}

#[test]
fn a_file_that_is_there_has_to_change() {
    let folder = Folder::new();
    let file = folder.path("file");
    write(&file, "one");
    assert_eq!(wait_while(&folder, "file", || write(&file, "two")).came()[1].1, "changed");
    assert_eq!(
        wait_while(&folder, "file", || fs::remove_file(&file).expect("a file")).came()[1].1,
        "removed"
    );
    write(&file, "one");
    write(&folder.path("next"), "one");
    let ended = wait_while(&folder, "file", || fs::rename(folder.path("next"), &file).expect("a move"));
    assert_eq!(ended.came()[1].1, "changed", "it was replaced");
}

#[test]
fn neighbours_do_not_count() {
    let folder = Folder::new();
    write(&folder.path("there"), "");
    for (name, what) in [("there", "changed"), ("missing", "exists")] {
        let (mut running, _) = begin(&folder, name);
        for round in 0..20 {
            write(&folder.path(&format!("neighbour-{round}")), "text");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        running.expect_running();
        write(&folder.path(name), "text");
        assert_eq!(running.finish().expect_code(0).came()[1].1, what);
    }
}

#[test]
fn a_folder_changes_when_an_entry_comes_or_goes() {
    let folder = Folder::new();
    fs::create_dir(folder.path("in")).expect("a folder");
    let entry = folder.path("in/entry");
    assert_eq!(wait_while(&folder, "in", || write(&entry, "")).came()[1].1, "changed");
    let (mut running, _) = begin(&folder, "in");
    write(&entry, "more");
    std::thread::sleep(std::time::Duration::from_millis(50));
    // What a file in it holds is not the folder's.
    running.expect_running();
    fs::remove_file(&entry).expect("a file");
    assert_eq!(running.finish().expect_code(0).came()[1].1, "changed");
}

#[test]
fn missing_folders_may_come_and_go() {
    let folder = Folder::new();
    let (mut running, _) = begin(&folder, "a/b/c/file");
    for _ in 0..3 {
        fs::create_dir_all(folder.path("a/b")).expect("folders");
        std::thread::sleep(std::time::Duration::from_millis(10));
        fs::remove_dir_all(folder.path("a")).expect("folders");
    }
    running.expect_running();
    fs::create_dir_all(folder.path("a/b/c")).expect("folders");
    write(&folder.path("a/b/c/file"), "");
    assert_eq!(running.finish().expect_code(0).came()[1].1, "exists");
}

#[test]
fn a_folder_further_up_may_be_moved_away_and_made_anew() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("a/b")).expect("folders");
    let ended = wait_while(&folder, "a/b/file", || {
        fs::rename(folder.path("a"), folder.path("old")).expect("a move");
        fs::create_dir_all(folder.path("a/b")).expect("folders");
        write(&folder.path("a/b/file"), "");
    });
    assert_eq!(ended.came()[1].1, "exists");
}

#[test]
fn links_are_followed_also_when_they_lead_nowhere_yet() {
    let folder = Folder::new();
    symlink("elsewhere/target", folder.path("link")).expect("a link");
    let ended = wait_while(&folder, "link", || {
        fs::create_dir(folder.path("elsewhere")).expect("a folder");
        write(&folder.path("elsewhere/target"), "");
    });
    assert_eq!(ended.came()[1].1, "exists");
    let ended = wait_while(&folder, "link", || write(&folder.path("elsewhere/target"), "more"));
    assert_eq!(ended.came()[1].1, "changed");
}

#[test]
fn a_link_on_the_way_may_be_turned_elsewhere() {
    let folder = Folder::new();
    for version in ["one", "two"] {
        fs::create_dir(folder.path(version)).expect("a folder");
    }
    write(&folder.path("two/file"), "");
    symlink("one", folder.path("current")).expect("a link");
    symlink("two", folder.path("next")).expect("a link");
    let ended = wait_while(&folder, "current/file", || {
        fs::rename(folder.path("next"), folder.path("current")).expect("a move");
    });
    assert_eq!(ended.came()[1].1, "exists");
}

#[test]
fn what_changes_without_telling_is_looked_at() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("a child");
    // Nobody is told when a process leaves /proc.
    let path = format!("/proc/{}", child.id());
    let begun = Folder::new();
    let listener = begun.listen("begun");
    let last = begun.source("unix", "begun");
    let mut running = Running::start(&mut command(&["wait", "--all", &format!("path:{path}"), &last]));
    listener.accept().expect("it connects when it has begun");
    running.expect_running();
    child.kill().expect("our child");
    child.wait().expect("our child");
    assert_eq!(running.finish().expect_code(0).came()[1].1, "removed");
}

#[test]
fn a_circle_of_links_is_waited_for_until_it_is_broken() {
    let folder = Folder::new();
    symlink("two", folder.path("one")).expect("a link");
    symlink("one", folder.path("two")).expect("a link");
    let ended = wait_while(&folder, "one", || {
        fs::remove_file(folder.path("two")).expect("a link");
        write(&folder.path("two"), "");
    });
    assert_eq!(ended.came()[1].1, "exists");
}

#[test]
fn a_relative_path_is_one_of_the_current_folder() {
    let folder = Folder::new();
    let listener = folder.listen("begun");
    let begun = folder.source("unix", "begun");
    let mut command = command(&["wait", "--all", "path:./in/../file", &begun]);
    let running = Running::start(command.current_dir(folder.path("")));
    listener.accept().expect("it connects when it has begun");
    fs::create_dir(folder.path("in")).expect("a folder");
    write(&folder.path("file"), "");
    assert_eq!(running.finish().expect_code(0).came()[1], ("path:./in/../file", "exists"));
}
