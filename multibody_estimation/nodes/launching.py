# SPDX-License-Identifier: Apache-2.0
"""A system of `nodes.bringup` as a LaunchDescription; the files in launch/ only name the system."""

from typing import Any

__all__ = ['describe']


def describe(system: str) -> Any:
    """Return the LaunchDescription of a system."""
    from launch.actions import DeclareLaunchArgument, OpaqueFunction
    from launch.substitutions import LaunchConfiguration
    from launch_ros.actions import LifecycleNode, Node

    from launch import LaunchDescription
    from multibody_estimation.nodes.bringup import SYSTEMS, resolve

    arguments = SYSTEMS[system].arguments

    def nodes(context: Any) -> list[Any]:
        given = {a.name: LaunchConfiguration(a.name).perform(context) for a in arguments}
        actions = []
        for spec in resolve(system, given):
            kind = LifecycleNode if spec.lifecycle else Node
            actions.append(
                kind(
                    package='multibody_estimation',
                    executable=spec.executable,
                    name=spec.executable,
                    namespace=spec.namespace,
                    parameters=[*spec.files, dict(spec.parameters)],
                    output='screen',
                )
            )
        return actions

    declared = [
        DeclareLaunchArgument(
            a.name, default_value=a.default, description=a.meaning, **({'choices': list(a.choices)} if a.choices else {})
        )
        for a in arguments
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=nodes)])
