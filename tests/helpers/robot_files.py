"""Small MJCF texts for tests of trees."""

# Every kind of joint, several on a body, branches, welded bodies, two trees, tilted inertias, springs and
# actuators of every kind; not a robot, but all its parts.
ZOO = """
<mujoco>
  <compiler angle="radian"/>
  <option gravity="0.3 -0.4 -9.7"/>
  <worldbody>
    <body name="floating" pos="0.3 -0.2 1.1" quat="0.8 0.2 -0.3 0.4">
      <joint type="free" stiffness="3" damping="0.2"/>
      <inertial pos="0.02 0.03 -0.01" mass="2.3" fullinertia="0.04 0.05 0.06 0.005 -0.004 0.003"/>
      <body name="swivel" pos="0.2 0.1 -0.3" quat="0.5 -0.1 0.7 0.2">
        <joint name="swivel" type="ball" pos="0.02 -0.03 0.04" stiffness="1.7" damping="0.3" armature="0.02"
               range="0 2.5" limited="true"/>
        <inertial pos="0.1 0 0.05" mass="0.7" fullinertia="0.01 0.012 0.008 0.001 0.002 -0.001"/>
        <body name="gimbal" pos="0 0.3 0.1" quat="0.9 0.1 0.2 -0.3">
          <joint name="yaw" axis="0 0.6 0.8" pos="0.05 0.01 0" stiffness="2" springref="0.4" ref="0.2"/>
          <joint name="slide" type="slide" axis="1 2 -1" damping="0.7" range="-0.3 0.4" limited="true"/>
          <joint name="pitch" axis="1 0 0.5" pos="0 0.1 0" armature="0.05" damping="0.1"/>
          <inertial pos="-0.05 0.02 0.1" mass="0.5" fullinertia="0.006 0.004 0.005 0.001 0 0.0005"/>
          <body name="bolted" pos="0.1 0.1 0" quat="0.7 0 0.7 0.1">
            <inertial pos="0 0.1 0" mass="0.4" diaginertia="0.002 0.003 0.002"/>
            <body name="tip" pos="0 0.2 0">
              <joint name="tip" axis="0 0 1" range="-1 1" limited="true" actuatorfrcrange="-2 2"/>
              <inertial pos="0.05 0 0.02" mass="0.2" diaginertia="0.001 0.0015 0.0012"/>
            </body>
          </body>
        </body>
      </body>
      <body name="arm" pos="-0.2 0 0.1">
        <joint name="arm" axis="0 1 0" pos="0 0 0.05" stiffness="5" springref="-0.3" ref="-0.1"/>
        <inertial pos="0 0 -0.15" mass="0.6" diaginertia="0.004 0.004 0.001"/>
      </body>
    </body>
    <body name="post" pos="2 1 0" quat="0.6 0.5 0.1 -0.2">
      <inertial pos="0 0 0.1" mass="1" diaginertia="0.1 0.1 0.1"/>
      <body name="rail" pos="0 0 0.5">
        <joint name="rail" type="slide" axis="0.3 1 0.2" armature="0.3"/>
        <inertial pos="0.1 0.2 0" mass="0.9" diaginertia="0.01 0.02 0.015"/>
        <body name="lid" pos="0.1 0 0.2">
          <joint name="lid" axis="0.2 0.1 1"/>
          <inertial pos="0.3 0 0" mass="0.3" diaginertia="0.001 0.003 0.004"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="cable">
      <joint joint="rail" coef="0.5"/>
      <joint joint="arm" coef="-1.5"/>
    </fixed>
  </tendon>
  <actuator>
    <motor name="motor" joint="yaw" gear="3" ctrllimited="true" ctrlrange="-0.5 0.5"/>
    <position name="position" joint="pitch" kp="20" kv="2" forcelimited="true" forcerange="-4 4"/>
    <velocity name="velocity" joint="tip" kv="3" gear="1.5"/>
    <general name="general" joint="arm" gainprm="4" biastype="affine" biasprm="0.7 -3 -0.4"/>
    <position name="pull" tendon="cable" kp="5"/>
    <motor name="thruster" joint="swivel" gear="0.4 -0.3 0.2"/>
  </actuator>
</mujoco>
"""


def chain(links):
    """A hanging chain, every hinge across the one before."""
    opening = "".join(
        f'<body name="link_{k}" pos="0 0 {-0.1 if k else 0}"><joint axis="{k % 2} {1 - k % 2} 0.1"/>'
        '<inertial pos="0 0.01 -0.05" mass="0.1" diaginertia="1e-4 1.2e-4 4e-5"/>'
        for k in range(links)
    )
    return f"<mujoco><worldbody>{opening}{'</body>' * links}</worldbody></mujoco>"


def on_floor(geom, extra=""):
    """A free body of one geom above a floor; `geom` has its attributes."""
    return f"""
    <mujoco>
      <worldbody>
        <geom name="floor" type="plane" size="5 5 1" friction="0.6"/>
        <body name="body" pos="0 0 0.5"><freejoint/><geom name="geom" mass="2" {geom}/>{extra}</body>
      </worldbody>
    </mujoco>"""
