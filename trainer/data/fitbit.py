r"""Fitbit Fitness Tracker Data: a person's day as fourteen numbers in [0, 1], to reconstruct."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import ClassVar, Literal, final

import numpy as np
from pydantic import Field

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet
from zetadp.trainer.data.files.columns import Column, Columns, as_numbers, csv_cells, scaled
from zetadp.trainer.data.files.location import Folder, file_of
from zetadp.trainer.data.splits import name_keys

TRAINING_FILE = "dailyActivity_merged_2016-03-12_2016-04-11.csv"
HELD_OUT_FILE = "dailyActivity_merged.csv"
USER, DAY = "Id", "ActivityDate"
LAST_TRAINING_DAY = date(2016, 4, 12)
"""The first file ends with it, cut off in its middle; the second has it whole. Held-out days come after it."""

_CALORIES = Column(name="Calories", lower=0.0, upper=5000.0)
FEATURES: tuple[Column, ...] = (
    Column(name="TotalSteps", lower=0.0, upper=30_000.0),
    Column(name="TotalDistance", lower=0.0, upper=25.0),
    Column(name="TrackerDistance", lower=0.0, upper=25.0),
    Column(name="LoggedActivitiesDistance", lower=0.0, upper=10.0),
    Column(name="VeryActiveDistance", lower=0.0, upper=20.0),
    Column(name="ModeratelyActiveDistance", lower=0.0, upper=10.0),
    Column(name="LightActiveDistance", lower=0.0, upper=15.0),
    Column(name="SedentaryActiveDistance", lower=0.0, upper=1.0),
    Column(name="VeryActiveMinutes", lower=0.0, upper=240.0),
    Column(name="FairlyActiveMinutes", lower=0.0, upper=240.0),
    Column(name="LightlyActiveMinutes", lower=0.0, upper=720.0),
    Column(name="SedentaryMinutes", lower=0.0, upper=1440.0),
    _CALORIES,
    _CALORIES,
)
r"""The SPOF paper's fourteen columns, energy twice as there, with bounds anyone could name: a day has 1440 minutes, of which at most half
are spent on the feet and four hours in sport; 30,000 steps are about 25 km; 5000 kcal is an endurance athlete's day."""


@final
class Fitbit(DataRecipe):
    r"""Daily activity of 35 people: days from 12 March to 12 April 2016 are trained on, days from 13 April to 12 May are held out.

    Attributes:
      folder: with the two files of daily activity.
      columns: the features, with public bounds; values beyond them are clipped to them.
    """

    UNIT: ClassVar[str] = "day"
    USER_UNIT: ClassVar[str | None] = "user"
    DESCRIPTION: ClassVar[str] = (
        "Fitbit Fitness Tracker Data (Furberg et al. 2016, CC0), daily activity: trained on the days from 12 March to 12 April 2016, held "
        "out the days from 13 April to 12 May. Each column is scaled to [0, 1] by public bounds; values beyond them are clipped to them. "
        "One record is one person's day. The held-out days are mostly from the same people: a guarantee for users says nothing about them."
    )

    kind: Literal["fitbit"] = "fitbit"
    folder: Folder
    columns: Columns = Field(default=FEATURES)

    def sources(self) -> tuple[Path, ...]:
        return tuple(file_of(self.folder, name) for name in (TRAINING_FILE, HELD_OUT_FILE))

    def arrays(self) -> DataSet:
        training, held_out = self.sources()
        features, users = self._features(training), np.array(csv_cells(training, [USER])[USER])
        later = np.array([_day(held_out, cell) > LAST_TRAINING_DAY for cell in csv_cells(held_out, [DAY])[DAY]])
        test = self._features(held_out)[later]
        return DataSet(features, features, test, test, None, name_keys(users))

    def _features(self, path: Path) -> np.ndarray:
        names = [column.name for column in self.columns]
        cells = csv_cells(path, names)
        table = np.column_stack([as_numbers(path, name, cells[name]) for name in names])
        return scaled(table, self.columns, "clip")


def _day(path: Path, cell: str) -> date:
    """Of a date as the files write it, 4/12/2016."""
    parts = cell.split("/")
    try:
        month, day, year = (int(part) for part in parts)
        return date(year, month, day)
    except ValueError:
        pass  # whose text quotes the cell
    raise InvalidParameter(f"{path.name}: column {DAY!r}", "dates as month/day/year", "a cell that isn't a date")
