"""`p3s push`: share the policy of a run on the Hugging Face Hub."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from p3s.cli.arguments import Flag, Run
from p3s.errors import UserError
from p3s.policies.hub import check_token, parse_hub_name, publish
from p3s.sharing.bundle import FILES, Bundle, write_bundle


@dataclass(frozen=True)
class Options:
    """Share the policy of a run on the Hugging Face Hub, with its results and a card."""

    run: Run
    """Run folder."""
    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="USER/NAME")]
    """Model repository on the Hub; it is made if there is none."""
    dry_run: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Write what would be shared into this folder, and push nothing."""
    last: Flag = False
    """The policy of the learner that the chief picked last, in place of the best."""
    private: Flag = False
    """A repository that is made is visible to you alone."""
    episodes: int = 10
    """Noiseless episodes whose mean return the card says."""
    seed: int = 0
    """Seed of the episodes."""
    no_video: Flag = False
    """Make no film."""


def run(options: Options) -> int:
    """Write the folder, and push it."""
    name = parse_hub_name(options.name)
    if name.revision is not None:
        raise UserError(f"a policy is pushed to USER/NAME, not to a revision: {name.repository}")
    bundle = Bundle(
        options.run, name, options.last, options.episodes, options.seed, not options.no_video
    )
    if options.dry_run is not None:
        _write(bundle, options.dry_run)
        print(f"wrote {options.dry_run}")
        return 0
    check_token(name)  # before episodes are played for nothing
    with tempfile.TemporaryDirectory() as folder:
        _write(bundle, Path(folder))
        address = publish(Path(folder), name, FILES, options.private)
    print(f'pushed to {address}\nanybody loads it by p3s.load("{name}")')
    return 0


def _write(bundle: Bundle, folder: Path) -> None:
    results = write_bundle(bundle, folder)
    spread = f"{results['mean_reward']:,.1f} ± {results['std_reward']:,.1f}"
    print(f"return {spread} over {results['n_eval_episodes']} episodes", flush=True)
