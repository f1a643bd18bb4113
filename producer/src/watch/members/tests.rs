//! Stories of processes, told by hand: one look at a time.

use super::*;

const PROMPT: TimeDelta = TimeDelta::seconds(25);
/// Containers with a fixed host name.
const FIXED: &str = "worker@fixed#1";

fn at(second: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
}

/// What a producer sees from look to look, and what it told of.
#[derive(Default)]
struct Story {
    members: Vec<Member>,
    episodes: Vec<Episode>,
}

impl Story {
    fn member(&mut self, label: &str, began: i64, seen: i64) -> &mut Member {
        let role = label.split('@').next().expect("a role").to_owned();
        let (label, started_at, seen_at) = (label.to_owned(), at(began), at(seen));
        let (id, stopped, gone) = (Uuid::new_v4(), false, false);
        self.members.push(Member { id, role, label, started_at, seen_at, stopped, gone });
        self.members.last_mut().expect("pushed")
    }

    /// One that is seen at every look.
    fn lives(&mut self, label: &str, began: i64) {
        self.member(label, began, i64::from(u32::MAX));
    }

    fn vanished(&mut self, label: &str, began: i64, seen: i64) {
        self.member(label, began, seen).gone = true;
    }

    fn stopped(&mut self, label: &str, began: i64, seen: i64) {
        self.member(label, began, seen).stopped = true;
    }

    /// One look: what is over first, then what begins, as the store keeps them.
    fn look(&mut self, second: i64) -> Vec<String> {
        let judged = judge(&self.members, &self.episodes, at(second), PROMPT);
        let mut told = Vec::new();
        for ending in judged.over {
            let over = self.episodes.iter_mut().find(|e| e.id == ending.id).expect("known");
            (over.open, over.ended_by) = (false, ending.by);
            told.extend(ending.detail);
        }
        for lost in judged.lost {
            if self.episodes.iter().any(|e| e.subject == lost.subject) {
                continue;
            }
            told.push(format!("{} lost", lost.name));
            self.episodes.push(Episode {
                id: self.episodes.len() as i64,
                kind: lost.kind,
                subject: lost.subject,
                name: lost.name,
                until: lost.until.expect("its last heartbeat"),
                open: true,
                ended_by: None,
            });
        }
        told
    }
}

#[test]
fn a_death_beside_a_living_namesake_is_told() {
    let mut story = Story::default();
    story.lives(FIXED, 0);
    story.vanished(FIXED, 1, 100);

    assert_eq!(story.look(130), ["worker@fixed#1 lost"]);
    assert_eq!(story.look(132), [""; 0], "once");
    story.lives(FIXED, 140);
    assert_eq!(story.look(142), ["The worker worker@fixed#1 is back"]);
}

#[test]
fn of_two_that_die_one_comes_back_and_then_the_other() {
    let mut story = Story::default();
    story.vanished(FIXED, 0, 100);
    story.vanished(FIXED, 0, 102);
    assert_eq!(story.look(130).len(), 2);

    story.lives(FIXED, 140);
    assert_eq!(story.look(142).len(), 1);
    assert_eq!(story.look(144), [""; 0], "the other is still missed");
    story.lives(FIXED, 150);
    assert_eq!(story.look(152).len(), 1);
    assert!(story.episodes.iter().all(|episode| !episode.open));
}

#[test]
fn an_old_loss_does_not_take_what_belongs_to_another() {
    for [old, new, next] in [
        ["worker@a#1", "worker@b#2", "worker@b#3"],
        [FIXED, FIXED, FIXED],
        ["worker@a#1", FIXED, FIXED],
    ] {
        let mut story = Story::default();
        story.vanished(old, 0, 100);
        assert_eq!(story.look(130), [format!("{old} lost")]);

        // Its lease is not over yet: nobody knows that it is dead when its successor is there already.
        let id = story.member(new, 0, 1000).id;
        story.lives(next, 1003);
        assert_eq!(story.look(1004), [""; 0]);
        story.members.iter_mut().find(|m| m.id == id).expect("known").gone = true;
        let told = [story.look(1030), story.look(1032)].concat();

        assert!(!told.iter().any(|said| said.contains(old) && old != new), "{told:?}");
        assert_eq!(told.len(), if new == next { 0 } else { 2 }, "{told:?}");
        let open: Vec<&str> =
            story.episodes.iter().filter(|e| e.open).map(|e| e.name.as_str()).collect();
        assert_eq!(open, [old]);
        // Neither does it take the successor of one that stopped in good order.
        story.stopped("worker@c#1", 0, 2000);
        story.lives("worker@c#2", 2002);
        assert_eq!(story.look(2004), [""; 0]);
        // One more is one more.
        story.lives("worker@d#1", 3000);
        assert_eq!(story.look(3004).len(), 1);
    }
}

#[test]
fn restarts_rolling_restarts_and_clean_stops_page_nobody() {
    let mut story = Story::default();
    // Killed and back at once, twice.
    story.vanished(FIXED, 0, 100);
    story.vanished(FIXED, 102, 110);
    story.lives(FIXED, 113);
    // Cut off from the database, and registered anew.
    story.vanished("worker@a#7", 0, 200);
    story.lives("worker@a#7", 212);
    // One after the other: stopped and started, or started before the old one stops.
    for n in 0..5 {
        story.stopped(FIXED, 0, 300 + 10 * n);
        story.lives(FIXED, 304 + 10 * n);
        story.stopped("worker@b#1", 0, 300 + 10 * n);
        story.lives("worker@b#2", 296 + 10 * n);
    }
    // Fewer of them, while one is killed and comes back.
    story.vanished(FIXED, 0, 400);
    story.stopped(FIXED, 0, 401);
    story.lives(FIXED, 402);

    for second in [420, 500, 3000] {
        assert_eq!(story.look(second), [""; 0], "{second}");
    }
}

#[test]
fn who_comes_back_is_back_even_if_it_leaves_again_and_replaces_nobody() {
    for (gone, stopped) in [(false, false), (true, false), (false, true)] {
        let mut story = Story::default();
        story.vanished("worker@a#1", 0, 100);
        story.vanished("worker@b#1", 0, 90);
        assert_eq!(story.look(120).len(), 2);

        let again = story.member("worker@a#1", 125, 130);
        (again.gone, again.stopped) = (gone, stopped);
        let told = story.look(160);

        assert_eq!(told[0], "The worker worker@a#1 is back");
        assert_eq!(told.len(), if gone { 2 } else { 1 }, "{told:?}");
        assert!(story.episodes[1].open, "the other did not come back");
    }
}

#[test]
fn each_newcomer_takes_one_place_of_its_role() {
    let mut story = Story::default();
    story.vanished("worker@a#1", 0, 100);
    story.vanished("worker@b#1", 0, 101);
    story.vanished("producer@a#1", 0, 102);
    story.lives("worker@old#1", 50);
    story.lives("worker@c#1", 110);

    assert_eq!(story.look(130).len(), 3);
    assert_eq!(story.look(132), ["The worker worker@a#1 is replaced by worker@c#1"]);
    assert_eq!(story.look(134), [""; 0]);
    story.lives("producer@a#1", 220);
    assert_eq!(story.look(230), ["The producer producer@a#1 is back"]);
}

#[test]
fn who_says_goodbye_after_all_is_not_missed_for_a_day() {
    let mut story = Story::default();
    story.vanished("worker@a#1", 0, 100);
    assert_eq!(story.look(130).len(), 1);

    let frozen = &mut story.members[0];
    (frozen.gone, frozen.stopped, frozen.seen_at) = (false, true, at(140));

    assert_eq!(story.look(142), ["The worker worker@a#1 has stopped in good order after all"]);
    assert_eq!(story.look(144), [""; 0]);
}

/// It is on record for two hours and missed for a day.
#[test]
fn a_loss_that_is_on_record_no_more_still_waits_and_is_forgotten_in_silence() {
    let late = i64::try_from(FORGOTTEN.as_secs()).expect("a day");
    let mut story = Story::default();
    story.vanished("worker@a#1", 0, 100);
    story.vanished("worker@b#1", 0, 100);
    assert_eq!(story.look(130).len(), 2);
    story.members.clear();

    assert_eq!(story.look(late - 1000), [""; 0]);
    story.lives("worker@b#1", late - 900);
    assert_eq!(story.look(late - 890), ["The worker worker@b#1 is back"]);
    assert_eq!(story.look(late + 99), [""; 0]);
    assert!(story.episodes[0].open);
    assert_eq!(story.look(late + 102), [""; 0]);
    assert!(!story.episodes[0].open);
}
