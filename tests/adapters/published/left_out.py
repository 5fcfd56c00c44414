"""The published tests that are left out, by reason. A test of ours fails when one of them is no
longer in its suite."""

from __future__ import annotations

from collections.abc import Iterator


def _of(file: str, *names: str) -> Iterator[str]:
    return (f"tests/{file}.py::{name}" for name in names)


OPENAI = {
    "writes a row that is not JSON, or two rows with one time, with SQL": (
        *_of(
            "extensions/memory/test_async_sqlite_session",
            "test_async_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
            "test_async_sqlite_session_get_items_same_timestamp_consistent_order",
            "test_async_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
            "test_async_sqlite_session_pop_item_same_timestamp_returns_latest",
            "test_async_sqlite_session_pop_item_skips_corrupt_most_recent",
        ),
        *_of(
            "memory/test_session",
            "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
            "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
            "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
            "test_sqlite_session_pop_item_skips_corrupt_most_recent",
        ),
    ),
    "closing ends their session; ours opens its store again at the next use": (
        *_of(
            "extensions/memory/test_async_sqlite_session",
            "test_async_sqlite_session_close_before_use_is_terminal",
            "test_async_sqlite_session_close_is_idempotent",
            "test_async_sqlite_session_closed_operations_raise_runtime_error",
            "test_async_sqlite_session_closed_rejects_empty_add_items",
        ),
        *_of(
            "memory/test_session",
            "test_sqlite_session_closed_rejects_empty_add_items",
        ),
    ),
    "a promise that `EncryptedSession` makes for `SQLiteSession` alone": (
        *_of(
            "extensions/memory/test_encrypt_session",
            "test_encrypted_pop_authentication_is_atomic_with_concurrent_mutations",
            "test_encrypted_pop_cancellation_waits_for_authentication_rollback",
            "test_encrypted_pop_rechecks_authentication_after_expired_tail",
            "test_encrypted_pop_wrong_key_preserves_recoverable_history",
            "test_encrypted_pop_wrong_key_preserves_row_identity",
        ),
    ),
    "breaks off between two steps; ours replaces the items in one": (
        *_of(
            "extensions/memory/test_encrypt_session",
            "test_encrypted_compaction_restores_original_tokens_before_concurrent_append",
        ),
        *_of(
            "memory/test_openai_responses_compaction_session",
            "TestOpenAIResponsesCompactionSession::test_cancel_restore_waits_for_mutation_lock_before_newer_writes",
            "TestOpenAIResponsesCompactionSession::test_exception_restore_drains_when_compaction_is_cancelled",
        ),
    ),
    "pauses or breaks the connection to SQLite, or looks at it": (
        *_of(
            "extensions/memory/test_async_sqlite_session",
            "test_cancelled_add_items_rolls_back_write_transaction",
            "test_cancelled_close_finishes_cleanup_and_propagates_cancellation",
            "test_cancelled_connect_closes_eventually_acquired_connection",
            "test_cancelled_initialization_finishes_candidate_close",
            "test_cancelled_wal_retry_closes_startup_connection",
            "test_close_retries_connection_quarantined_after_rollback_failure",
            "test_close_retries_quarantined_failed_initialization_candidate",
            "test_failed_add_items_rolls_back_and_reuses_connection",
            "test_failed_clear_session_rolls_back",
            "test_failed_initialization_closes_candidate_connection",
            "test_failed_pop_item_releases_write_lock",
            "test_initialization_does_not_retry_unrecoverable_wal_errors",
            "test_initialization_failure_then_cancellation_during_candidate_close",
            "test_initialization_retries_transient_wal_lock",
            "test_operation_failure_then_cancellation_during_rollback",
            "test_post_commit_cancellation_propagates_after_known_mutation_outcome",
            "test_rollback_failure_closes_and_evicts_connection",
        ),
        *_of(
            "memory/test_compaction_suffix",
            "test_cancelled_suffix_transaction_settles_before_newer_append",
            "test_failed_encrypted_suffix_transaction_preserves_original_tokens",
            "test_suffix_transaction_rolls_back_failed_insert",
        ),
        *_of(
            "memory/test_openai_responses_compaction_session",
            "TestOpenAIResponsesCompactionSession::test_settled_clear_failure_invalidates_response_chain",
            "TestOpenAIResponsesCompactionSession::test_settled_pop_failure_invalidates_response_chain",
        ),
        *_of(
            "memory/test_session",
            "test_sqlite_session_close_closes_worker_thread_connections",
            "test_sqlite_session_close_retries_quarantined_connection",
            "test_sqlite_session_closes_retired_connections_before_the_next_allocation",
            "test_sqlite_session_failed_add_items_releases_write_lock",
            "test_sqlite_session_failed_clear_session_rolls_back",
            "test_sqlite_session_failed_pop_item_releases_write_lock",
            "test_sqlite_session_file_lock_is_shared_across_instances",
            "test_sqlite_session_keeps_connections_of_live_worker_threads",
            "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome",
            "test_sqlite_session_reaps_connections_from_exited_worker_threads",
            "test_sqlite_session_rollback_failure_evicts_connection",
        ),
        *_of(
            "test_run_impl_resume_paths",
            "test_handoff_resume_after_cancelled_compaction_commits",
        ),
    ),
}

LANGGRAPH = {
    "compares times with the clock": (
        *_of(
            "test_pregel",
            "test_stream_subgraphs_during_execution",
            "test_stream_buffering_single_node",
        ),
        *_of(
            "test_pregel_async",
            "test_stream_subgraphs_during_execution",
            "test_stream_buffering_single_node",
        ),
    ),
}
