//! The framework on a cluster, with faults between them.
//!
//! The operator under test keeps shelves: a PodDisruptionBudget stands for a shelf (it has a spec, a generation and
//! conditions in its status, and the server alone does nothing with it), `minAvailable` says how many books it
//! has, and each book is a ConfigMap.
//!
//! Every story is told on the embedded API server, most of them in virtual time, and again on the real
//! kube-apiserver where it has been built: the same code, each in a namespace of its own. `cargo test -p stead-test
//! --test it framework::embedded` runs the former, `framework::every_story` the latter.

mod applying;
mod crashes;
mod custom;
mod faults;
mod leading;
mod observing;
mod parcel;
mod people;
mod shelf;
mod stage;
mod time_travel;
mod webhooks;
mod world;

/// Makes a test of each story on the embedded cluster, and one test of all of them on the real one.
macro_rules! stories {
    ($($pace:ident { $($module:ident :: $story:ident),* $(,)? })*) => {
        mod embedded {
            $($(
                #[test]
                fn $story() {
                    super::stage::embedded(super::stage::Pace::$pace, |world| Box::pin(super::$module::$story(world)));
                }
            )*)*
        }

        #[test]
        fn every_story_on_the_real_api_server() {
            stage::real(vec![$($((stringify!($story), |world| Box::pin($module::$story(world)))),*),*]);
        }
    };
}

stories! {
    Virtual {
        applying::an_unchanged_object_costs_no_writes_and_a_removed_child_is_pruned,
        applying::a_restarted_operator_finds_its_work_done_and_writes_nothing,
        applying::f23_only_our_fields_of_an_edited_child_are_reverted,
        applying::f24_a_deleted_child_comes_back,
        applying::f26_an_object_that_is_not_ours_is_left_alone_and_named_in_a_condition,
        applying::f26_a_name_that_is_taken_behind_the_caches_back_is_not_taken_over,
        applying::f27_a_child_that_another_root_controls_is_refused_to_the_second,
        applying::f29_a_field_that_cannot_be_changed_is_refused_and_said,
        applying::f29_a_child_that_may_be_replaced_is_and_an_event_says_so,
        applying::f36_names_of_253_characters_and_with_dots_have_valid_children,
        applying::f44_a_field_that_somebody_takes_back_again_and_again_is_left_to_them,
        crashes::f1_killed_around_every_write_it_comes_to_the_same_end,
        crashes::f2_a_lost_answer_is_retried_without_a_second_effect,
        crashes::f2_a_request_that_arrives_twice_has_one_effect,
        crashes::a_manager_whose_future_is_dropped_leaves_nothing_running,
        custom::f33_a_definition_that_is_deleted_and_installed_again_is_survived,
        custom::f34_an_object_that_cannot_be_read_is_degraded_alone,
        custom::f46_fields_that_our_type_does_not_know_are_kept,
        faults::f3_a_storm_of_conflicts_ends_and_starves_nobody,
        faults::f4_a_busy_server_that_says_when_to_come_back_is_obeyed,
        faults::f4_a_busy_server_does_not_cost_the_lease,
        faults::f5_a_server_that_fails_for_a_while_is_retried_with_growing_pauses,
        faults::f6_a_child_deleted_while_the_watch_expired_is_noticed,
        faults::f8_a_watch_that_fell_silent_is_opened_anew,
        faults::f10_events_that_arrive_twice_cause_no_write,
        faults::f11_a_child_deleted_and_created_between_two_looks_is_another_one,
        faults::f14_nothing_is_deleted_by_a_plan_that_an_old_cache_made,
        faults::f15_a_key_waits_until_the_cache_has_seen_its_own_writes,
        faults::f22_a_run_whose_root_was_created_again_meanwhile_writes_nothing,
        faults::f28_a_refusal_by_quota_is_a_condition_and_recovers_unaided,
        faults::f30_a_spec_that_the_server_rejects_is_reported_and_its_revert_recovers_at_once,
        faults::f37_a_panic_concerns_its_own_object_alone,
        faults::f38_a_hung_reconcile_is_cancelled_and_tried_again,
        faults::what_holds_only_once_a_plan_is_carried_out_is_not_said_before,
        faults::f43_a_revoked_permission_is_a_condition_that_names_verb_and_resource,
        leading::f16_writes_of_a_leader_that_was_paused_arrive_late_and_are_refused,
        leading::f17_a_wall_clock_that_jumps_by_an_hour_moves_no_lease,
        leading::f19_a_leader_whose_lease_is_deleted_or_stolen_steps_down_first,
        leading::f20_a_leader_that_is_cut_off_stops_before_another_starts,
        leading::f21_a_leader_that_is_asked_to_stop_finishes_its_step_and_then_gives_the_lease_back,
        observing::a_hot_loop_is_a_condition_an_event_and_a_metric,
        observing::every_write_is_remembered_with_what_it_changed,
        people::a_root_that_others_hold_back_says_that_it_goes_and_nothing_is_done_for_it,
        people::f32_a_namespace_that_ends_gets_nothing_new_and_is_let_go,
        time_travel::f12_a_server_restored_from_a_backup_is_noticed_and_put_right,
    }
    Real {
        webhooks::f40_a_webhook_that_is_down_stops_neither_what_runs_nor_the_operator,
        webhooks::f41_a_certificate_made_anew_is_served_and_known_at_once,
    }
}
