"""A session that uses everything: a mode switch, a question, a plan, tasks, two approvals at once,
a forked sub-agent that asks as well, follow-ups, and a message that steers; and the one who
attends to it, who looks at what is there and does what is left to do, in whichever process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from holdfast import Agent, Harness, Mode, SubAgent, ToolContext, tool
from holdfast.errors import AlreadyDecided, NotPending
from holdfast.harness.builtins import ASKING, TASKS
from holdfast.harness.session.session import Session, core_of
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.values.pending import Ask

from ...crash.scene import Effects

LOOK = 0.02
BUILD, FASTER, THEN, THANKS = "Build it.", "Faster.", "And then?", "Thanks."
NOT_NOW = "not now"
TASK = {"id": "paint", "content": "Paint it", "status": "in_progress"}
USED = {"input_tokens": 3, "output_tokens": 2}
SCRIPTS: dict[str, Any] = {
    "Find it.": [Say(calls=[Use("pay", amount=3)], usage=USED), Say("Found.", usage=USED)],
    FASTER: [
        Say("I hurry.", calls=[Use("task_complete", id="paint")], usage=USED),
        Say("All done.", usage=USED),
    ],
    THEN: Say("Nothing more.", usage=USED),
    THANKS: Say("You are welcome.", usage=USED),
    BUILD: [
        Say("I ask.", calls=[Use("ask_user", question="Colour?")], usage=USED),
        Say("A plan.", calls=[Use("submit_plan", title="Paint", plan="Red.")], usage=USED),
        Say("Tasks.", calls=[Use("task_write", tasks=[TASK])], usage=USED),
        Say("Both.", calls=[Use("pay", amount=1), Use("refund", amount=2)], usage=USED),
        Say("Go.", calls=[Use("subagent", agent="twin", task="Find it.")], usage=USED),
        Say("I work.", calls=[Use("work")], usage=USED),
    ],
}


class Stage:
    """The agent in one process; `posted`: all that comes while it works has come."""

    def __init__(self, effects: Effects) -> None:
        self.effects, self.posted = effects, asyncio.Event()

    def agent(self) -> Agent:
        effects, posted = self.effects, self.posted

        @tool(approval="ask", category="payments")
        def pay(amount: int, context: ToolContext) -> str:
            """Pay."""
            effects.add(f"pay-{amount}", context.key)
            return f"paid {amount}"

        @tool(approval="ask", category="payments")
        def refund(amount: int, context: ToolContext) -> str:
            """Pay back."""
            effects.add(f"refund-{amount}", context.key)
            return f"refunded {amount}"

        @tool(repeat_safe=True)
        async def work(context: ToolContext) -> str:
            """Work until everybody has had a say."""
            await posted.wait()
            await asyncio.to_thread(effects.add, "work", context.key, once=True)
            await context.update_state(worked=True)
            return "worked"

        modes = [
            Mode("draft"),
            Mode("plan", after_plan="build"),
            Mode("build", model="big/model"),
        ]
        return Agent(
            "Yard",
            instructions="Build.",
            tools=[pay, refund, work, *ASKING, *TASKS],
            modes=modes,
            subagents=[SubAgent("twin", "knows all that you know", forked=True)],
            state={"worked": False},
        )

    def harness(self, store: Any, tenant: str, ttl: float) -> Harness:
        models = [ScriptedModel.by_input(SCRIPTS, ref=f"{size}/model") for size in ("small", "big")]
        return Harness(
            self.agent(),
            providers=models,
            default_model="small/model",
            store=store,
            tenant=tenant,
            ttl=ttl,
            price=lambda ref, usage: 0.5,
        )

    async def attend(self, session: Session) -> None:
        """Do whatever is left to do, until all is done."""
        if not await session.events(kinds=("message.received",)):
            await session.mode.switch("plan")
            await session.thread.settings.set(theme="dark")
            await session.state.update(colour="none")
            await session.post(BUILD, key="build")
        while not self._over(session):
            if not self.posted.is_set() and await _works(session):
                await session.follow_ups.add(THEN, key="then")
                await session.follow_ups.add(THANKS, key="thanks")
                await session.post(FASTER, busy="steer", key="faster")
                self.posted.set()
            for ask in await session.pending():
                with contextlib.suppress(AlreadyDecided, NotPending):
                    await self._decide(session, ask)
            await asyncio.sleep(LOOK)

    def _over(self, session: Session) -> bool:
        state = core_of(session).live.state
        return self.posted.is_set() and state.active is None and not state.queue

    async def _decide(self, session: Session, ask: Ask) -> None:
        if ask.what == "question":
            await session.answer("red", ask.id, actor="ann")
        elif ask.what == "external":
            await self._tell(session, ask)
        elif ask.tool == "refund":
            await session.deny(ask.id, NOT_NOW, actor="ann")
        else:
            await session.approve(ask.id, actor="ann")

    async def _tell(self, session: Session, ask: Ask) -> None:
        """Asked whether something happened, look."""
        done = await asyncio.to_thread(self.effects.all)
        if any(effect.key == ask.call for effect in done):
            await session.answer(f"paid {ask.arguments['amount']}", ask.id, actor="ann")
        else:
            await session.approve(ask.id, actor="ann")


async def _works(session: Session) -> bool:
    begun = await session.events(kinds=("tool.started",))
    return any(event.json()["name"] == "work" for event in begun)
