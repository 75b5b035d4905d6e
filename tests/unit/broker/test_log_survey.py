"""What a stopped broker's log directory says of itself to a restore."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.errors import WrongDirectory
from leadline_broker.adapters.log.survey import SurveyedLog, survey_logs
from leadline_broker.domain.publishes import FIRST_PUBLISHER_ID
from tests.unit.broker.log_support import batch

ID = "11111111-0000-0000-0000-000000000000"


def written(root: Path, *, clean: bool) -> str:
    """Write three records in epochs up to 6, and stop; return the directory's id."""
    directory = LogDirectory(root, cluster_id="c", broker_id=4)
    directory.load_all()
    log = directory.open("t", ID, 0)
    for offset, epoch in enumerate((5, 5, 6)):
        log.append(batch(offset, epoch=epoch))
    log.flush()
    directory.open("t", ID, 1).append(batch(0, epoch=2))
    directory.persist_controller_epoch(8)
    if clean:
        directory.close(incarnation=12)
    else:
        directory.release()
    return directory.identity.directory_id


@pytest.mark.parametrize("clean", [True, False])
def test_a_survey_has_every_log_and_changes_nothing(tmp_path: Path, *, clean: bool) -> None:
    directory_id = written(tmp_path, clean=clean)
    first = survey_logs(tmp_path)
    assert (first.cluster_id, first.broker_id, first.directory_id) == ("c", 4, directory_id)
    assert (first.controller_epoch, first.incarnation) == (8, 12 if clean else -1)
    assert first.logs == (SurveyedLog("t", ID, 0, 6, 3), SurveyedLog("t", ID, 1, 2, 1))
    assert first.lost == ()
    assert survey_logs(tmp_path) == first
    directory = LogDirectory(tmp_path, cluster_id="c", broker_id=4)
    assert directory.clean_incarnation == (12 if clean else None)
    directory.release()


def test_an_invalid_tail_does_not_count(tmp_path: Path) -> None:
    written(tmp_path, clean=False)
    segment = tmp_path / "t-0" / f"{0:020}.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    assert survey_logs(tmp_path).logs[0] == SurveyedLog("t", ID, 0, 5, 2)


def test_r17_a_log_that_is_gone_counts_as_lost_until_it_is_written_again(tmp_path: Path) -> None:
    written(tmp_path, clean=True)
    shutil.rmtree(tmp_path / "t-1")
    for _ in range(2):
        assert survey_logs(tmp_path).lost == ((ID, 1),)
    directory = LogDirectory(tmp_path, cluster_id="c", broker_id=4)
    directory.load_all()
    directory.open("t", ID, 1).append(batch(0, epoch=9))
    directory.close(13)
    survey = survey_logs(tmp_path)
    assert survey.lost == ()
    assert survey.logs[1].directory_id not in ("", survey.directory_id)


def test_the_highest_producer_id_is_found_and_publishers_do_not_count(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path, cluster_id="c", broker_id=4)
    directory.load_all()
    log = directory.open("t", ID, 0)
    for offset, producer_id in enumerate((8 << 24 | 9, 3, FIRST_PUBLISHER_ID + 5)):
        log.append(batch(offset, producer=(producer_id, 0, 0)))
    directory.close(1)
    assert survey_logs(tmp_path).producer_number == 7


def test_a_directory_in_use_and_one_of_no_broker_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    directory = LogDirectory(root, cluster_id="c", broker_id=4)
    with pytest.raises(WrongDirectory, match="in use"):
        survey_logs(root)
    directory.release()
    with pytest.raises(WrongDirectory, match="no log directory"):
        survey_logs(tmp_path)
    assert not (tmp_path / "meta.json").exists()
